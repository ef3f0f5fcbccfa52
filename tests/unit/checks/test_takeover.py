"""Taking over what runs by hand: the commands, run by a real shell on stand-ins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkfleet.checks.adoption import FoundWeights, found_containers, found_weights
from sparkfleet.checks.case import Case
from sparkfleet.checks.takeover import link_weights, park, parked_name, put_back
from sparkfleet.facts.host import Container, HostFacts
from sparkfleet.spec.plan import ModelPlan

from .samples import CASES, LOCK, facts_of, plan_of, read

DOCKER = """#!/bin/sh
# Notes what it is asked to do, and remembers the container's name.
case "$1" in
  inspect) cat "$LOG.name" 2>/dev/null || echo "/qwen36-35b" ;;
  rename) echo "/$3" >"$LOG.name"; echo "$@" >>"$LOG" ;;
  *) echo "$@" >>"$LOG" ;;
esac
"""


def case_of(name: str) -> Case:
    case = read(CASES / f"{name}.json")
    facts = facts_of(case)
    assert isinstance(facts, HostFacts)
    return Case(plan_of(case), facts, LOCK)


def run(script: str, tmp_path: Path) -> list[str]:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    subprocess.run(["/bin/sh", "-c", script], env=environment, check=True)
    return log.read_text().splitlines() if log.exists() else []


def test_a_running_container_is_parked_and_put_back_as_it_was(tmp_path: Path) -> None:
    (box,) = found_containers(case_of("adopt-container-allowed"))
    box = box.model_copy(update={"restart": "unless-stopped"})
    assert run(park([box]), tmp_path) == [
        f"update --restart=no {box.id}",
        f"stop {box.id}",
        f"rename {box.id} {parked_name(box)}",
    ]
    assert run(put_back([box]), tmp_path) == [
        f"rename {box.id} qwen36-35b",
        f"start {box.id}",
        f"update --restart=unless-stopped {box.id}",
    ]


def test_a_step_that_was_cut_may_be_repeated(tmp_path: Path) -> None:
    (box,) = found_containers(case_of("adopt-exited"))
    renamed = f"rename {box.id} {parked_name(box)}"
    assert run(park([box]), tmp_path) == [renamed]
    assert run(park([box]), tmp_path) == [], "it has that name already"


def test_a_stopped_container_only_loses_its_name(tmp_path: Path) -> None:
    (box,) = found_containers(case_of("adopt-exited"))
    assert run(park([box]), tmp_path) == [f"rename {box.id} {parked_name(box)}"]
    assert run(put_back([box]), tmp_path) == [f"rename {box.id} qwen36-35b"]


def test_a_refusal_stops_the_script(tmp_path: Path) -> None:
    box = Container(name="a", id="f" * 64, state="running")
    with pytest.raises(subprocess.CalledProcessError):
        run(park([box]).replace("docker stop", "false"), tmp_path)
    assert (tmp_path / "log").read_text().splitlines() == [f"update --restart=no {box.id}"]


def test_weights_are_linked_and_not_copied(tmp_path: Path) -> None:
    (found,) = found_weights(case_of("adopt-weights"))
    assert found.files == ("model.safetensors",) and found.model.role == "model"
    source = tmp_path / "my model"
    (source / "sub").mkdir(parents=True)
    (source / "blob").write_bytes(b"weights")
    (source / "sub" / "model.safetensors").symlink_to("../blob")
    target = tmp_path / "models" / "o--name" / "c"
    model = ModelPlan("model", "o/name", "c", "c", "/model", None, (), str(target))
    weights = FoundWeights(model, str(source), ("sub/model.safetensors",), 7)
    run(link_weights([weights], os.getuid(), os.getgid()), tmp_path)
    run(link_weights([weights], os.getuid(), os.getgid()), tmp_path)  # twice does no harm
    made = target / "sub" / "model.safetensors"
    assert made.read_bytes() == b"weights" and not made.is_symlink()
    assert made.stat().st_ino == (source / "blob").stat().st_ino
