"""A box that is shared: by two engines of ours, and with somebody else's memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.api import Lab
from tests.lab.conftest import Fleet
from tests.lab.observe import Answer, ask, key_of, snapshot, state
from tests.lab.waiting import eventually

ROOT = "/var/lib/sparkfleet"


def words(text: str) -> str:
    """What a run said, without the breaks of its tables."""
    return re.sub(r"\s+", " ", re.sub("[─-╿]", " ", text))


@pytest.fixture
def catalog(lab: Lab, tmp_path: Path) -> Path:
    """The lab's tiny model with presets that two services of one box can have."""
    recipe = yaml.safe_load((lab.catalog / "recipes/lab-tiny.yaml").read_text())
    recipe |= {"name": "tiny-pair", "presets": {"alone": 0.85, "main": 0.5, "beside": 0.3}}
    path = tmp_path / "catalog"
    for kind, name, data in (
        ("recipes", "tiny-pair", recipe),
        (
            "hardware",
            "gb10-lab",
            yaml.safe_load((lab.catalog / "hardware/gb10-lab.yaml").read_text()),
        ),
    ):
        (path / kind).mkdir(parents=True, exist_ok=True)
        (path / kind / f"{name}.yaml").write_text(yaml.safe_dump(data, allow_unicode=True))
    return path


PAIR: dict[str, Any] = {
    "services": {
        "chat": {"recipe": "tiny-pair", "preset": "main", "bind": "0.0.0.0"},
        "batch": {"recipe": "tiny-pair", "preset": "beside", "port": 8001, "bind": "0.0.0.0"},
    }
}


@pytest.mark.engine
@pytest.mark.lab
def test_two_real_engines_share_a_box_and_the_weights(
    fleet: Fleet, host: str, bare: Callable[..., None], catalog: Path
) -> None:
    """Different ports and presets, one copy of the model; one boots after the other, always."""
    lab = fleet.lab
    bare(host)
    run = fleet.deploy({host: PAIR}, catalog=str(catalog))
    assert run.code == 0, run.said
    key = key_of(fleet.dir)
    for port in (8000, 8001):
        answer = completion(lab, host, port, key)
        assert answer.status == 200 and answer.body["choices"][0]["text"], answer
        assert ask(lab, host, "/v1/models", port=port).status == 401

    boxes = engines(lab, host)
    assert {name: share for name, (share, _) in boxes.items()} == {
        "lab-tiny": "0.5",
        "lab-tiny-batch": "0.3",
    }
    mounted = [{m["Source"] for m in mounts if m["Destination"] in ("/model", "/drafter")}
               for _, mounts in boxes.values()]  # fmt: skip
    assert mounted[0] == mounted[1], "the same directories on disk"
    stamps = lab.exec(host, f"find {ROOT}/models -name .sparkfleet-stamp.json", check=True).stdout
    assert len(stamps.split()) == 2, "one model, one drafter, each once"
    assert one_after_the_other(lab, host)

    again = fleet.deploy({host: PAIR}, catalog=str(catalog))
    assert again.code == 0 and "nothing changed" in again.out, again.said

    before = snapshot(lab, host)
    plan = fleet.run(fleet.write({host: PAIR}, catalog=str(catalog)), play="plays/plan.py")
    assert plan.code == 0, plan.said
    assert snapshot(lab, host) == before and "Starting operation" not in plan.said
    # A CPU build tells the size of its cache and not of its weights: the one is the engine's own
    # word, the other an estimate by the files that are pinned.
    assert plan.out.count("KV cache = 1,048,576 tokens, 512.0 sequences of 2,048 (boot log)") == 2
    assert plan.out.count("weights ≈ 0.0 (pinned files)") == 2
    assert "together  121.7 GiB × (0.50 + 0.30) = 97.4; available" in plan.out
    assert max(map(len, plan.out.splitlines())) <= 80

    old = {name: state(lab, host, name)["container"] for name in ("chat", "batch")}
    lab.power_cycle(host)

    def both_proven() -> bool:
        now = {name: state(lab, host, name) for name in old}
        return all(
            one.get("phase") == "proven" and one["container"] != old[name]
            for name, one in now.items()
        )

    eventually(both_proven, 300, "both proven after the power loss, without a run")
    assert one_after_the_other(lab, host), "though systemd starts both at once"


def engines(lab: Lab, host: str) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Container → its share of memory as the engine was told, and its mounts."""
    ids = "docker ps -q --filter label=sparkfleet.service"
    rows = json.loads(lab.exec(host, f"docker inspect $({ids})", check=True).stdout)
    found = {}
    for row in rows:
        words = row["Args"]
        share = words[words.index("--gpu-memory-utilization") + 1]
        found[row["Name"].removeprefix("/")] = (share, row["Mounts"])
    return found


def one_after_the_other(lab: Lab, host: str) -> bool:
    """Whether the later engine's first line came after the earlier one was serving."""
    boots = []
    for name in engines(lab, host):
        log = lab.exec(host, f"docker logs -t {name} 2>&1", check=True).stdout.splitlines()
        last = next(i for i, line in enumerate(log) if "Application startup complete" in line)
        boots.append((log[0].split()[0], log[last].split()[0]))
    (_, ready), (begun, _) = sorted(boots)
    return ready < begun


def completion(lab: Lab, host: str, port: int, key: str) -> Answer:
    body = {"model": "tiny", "prompt": "One, two,", "max_tokens": 8, "temperature": 0}
    return ask(lab, host, "/v1/completions", body, key, port=port)


@pytest.mark.lab
def test_a_co_tenant_that_eats_memory_is_counted(
    fleet: Fleet, host: str, bare: Callable[..., None], catalog: Path
) -> None:
    """The check refuses with the arithmetic and with shares that fit, and they do."""
    lab = fleet.lab
    bare(host)

    def preflight(pair: dict[str, Any], play: str = "preflight") -> tuple[int, str]:
        path = fleet.write({host: pair}, catalog=str(catalog))
        run = fleet.run(path, play=f"plays/{play}.py")
        return run.code, words(run.said)

    lab.set_memory(host, available_kib=60 * 2**20)
    try:
        code, said = preflight(PAIR)
        assert code == 1
        assert f"Not enough free memory on {host}" in said
        assert "121.7 GiB × (0.50 + 0.30) = 97.4; available 60.0" in said
        fitting = dict(re.findall(r"(chat|batch): utilization (0\.\d\d)", said))
        assert fitting == {"chat": "0.30", "batch": "0.18"}
        code, said = preflight(PAIR, "plan")
        assert code == 1
        assert "DOES NOT FIT. It would fit with chat: utilization 0.30, batch: utili" in said
        services = {
            name: {**row, "preset": None, "utilization": float(fitting[name])}
            for name, row in PAIR["services"].items()
        }
        code, said = preflight({"services": services})
        assert code == 0, said
    finally:
        lab.set_memory(host)
    code, said = preflight(PAIR)
    assert code == 0, said
