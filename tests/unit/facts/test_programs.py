"""The survey's sections, each against files and programs made for it."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.facts.command import MODULES
from sparkfleet.node import survey, survey_fleet, survey_gpu, survey_host

CASES = Path(__file__).parents[2] / "cases"


def texts(kind: str) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted((CASES / kind).glob("*.txt"))]


@pytest.mark.parametrize("path", texts("dgx-release"))
def test_dgx_release(path: Path) -> None:
    """The last update level holds, dates may be in any language, the serial number stays."""
    found = survey_host.dgx(path.read_text("utf-8"))
    assert found == json.loads(path.with_suffix(".json").read_text())
    assert "1983925000815" not in json.dumps(found) and "S1LENT" not in json.dumps(found)


@pytest.mark.parametrize("path", texts("meminfo"))
def test_meminfo(path: Path) -> None:
    found = survey_host.meminfo(path.read_text())
    assert found == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("module", MODULES)
def test_an_old_python_can_say_that_it_is_old(module: str) -> None:
    """The survey reports a python3 below 3.11, so it has to run on one."""
    source = (Path(survey.__file__).parent / f"{module}.py").read_text("utf-8")
    ast.parse(source, feature_version=(3, 9))


def program(directory: Path, name: str, script: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory in which the survey looks for programs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setattr(survey_host, "SEARCH_PATH", str(directory))
    return directory


def test_gpu_output_that_is_not_utf8_stays_visible(path: Path) -> None:
    program(path, "nvidia-smi", "printf 'NVIDIA \\377GB10, 580.142, 12.1, [N/A]\\n'")
    found = survey_gpu.gpu({})
    assert found["rc"] == 0 and found["out"] == "NVIDIA \\xffGB10, 580.142, 12.1, [N/A]"
    assert found["xid"] == []


def test_gpu_absent_and_unstartable(path: Path) -> None:
    assert survey_gpu.gpu({})["tool"] is False
    program(path, "nvidia-smi", "")
    (path / "nvidia-smi").write_bytes(b"\x7fELF not really")
    assert "could not be started" in survey_gpu.gpu({})["err"]


def test_hung_driver_costs_its_own_answer_only(path: Path, tmp_path: Path) -> None:
    program(path, "nvidia-smi", f"echo $$ > {tmp_path}/pid; exec /bin/sleep 60")
    began = time.monotonic()
    answer = survey.survey({"root": str(tmp_path / "root"), "deadline": 1.5})
    assert time.monotonic() - began < 10
    assert answer["gpu"]["rc"] is None and "did not answer" in answer["gpu"]["err"]
    assert answer["memory"]["total_kib"] > 0 and answer["arch"] == os.uname().machine
    # It was ended, not left behind.
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_section_that_never_ends_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    release = __import__("threading").Event()
    monkeypatch.setitem(survey.SECTIONS, "dgx", lambda request: release.wait(60))
    answer = survey.survey({"root": "/nonexistent", "deadline": 0.3})
    release.set()
    assert "time was up" in answer["dgx"]["unknown"]


def test_section_that_fails_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: dict[str, Any]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(survey.SECTIONS, "identity", fails)
    monkeypatch.setitem(survey.SECTIONS, "filesystems", fails)
    answer = survey.survey({"root": "/nonexistent"})
    assert answer["machine_id"] == answer["user"] == {"unknown": answer["filesystems"]["unknown"]}
    assert "Input/output error" in answer["filesystems"]["unknown"]


def test_odd_bytes_become_printable() -> None:
    odd = os.fsdecode(b"model\xff.bin")
    found = survey.printable({odd: [odd, 1, None, {"a": (odd,)}]})
    assert json.loads(json.dumps(found).encode("ascii"))
    assert "model\\udcff.bin" in found


def test_package_version(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: my-nvidia-container-toolkit\nStatus: install ok installed\nVersion: 9\n\n"
        "Package: nvidia-container-toolkit-base\nStatus: install ok installed\nVersion: 8\n\n"
        "Package: removed\nStatus: deinstall ok config-files\nVersion: 7\n\n"
        "Package: nvidia-container-toolkit\nStatus: install ok installed\n"
        "Description: x\n Package: y\nVersion: 1.19.0-1\n"
    )
    assert survey_gpu.package_version("nvidia-container-toolkit", str(status)) == "1.19.0-1"
    assert survey_gpu.package_version("removed", str(status)) is None
    assert survey_gpu.package_version("absent", str(status)) is None
    assert survey_gpu.package_version("x", str(tmp_path / "none")) is None
    (tmp_path / "empty").touch()
    assert survey_gpu.package_version("x", str(tmp_path / "empty")) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_listeners(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        server.listen()
        port = server.getsockname()[1]
        (found,) = survey_host.listeners({"ports": [port]})
    assert found["addr"] == address and found["port"] == port
    assert found["pid"] == os.getpid() and found["process"]
    assert survey_host.listeners({"ports": [port]}) == []


def test_filesystem_of_what_does_not_exist_yet(tmp_path: Path) -> None:
    there = survey_host.filesystem(str(tmp_path))
    to_come = survey_host.filesystem(str(tmp_path / "a" / "b"))
    assert to_come["dev"] == there["dev"] and to_come["mount"] == there["mount"]
    assert 0 < to_come["free"] <= to_come["total"] and not to_come["read_only"]


def test_host_keys(tmp_path: Path) -> None:
    key = "AAAAC3NzaC1lZDI1NTE5AAAAIJ6VYyy5Bq7p7Kb8ki8rdJ5Yd6C2p4Q4Gg3q9T6cCk3t"
    (tmp_path / "ssh_host_ed25519_key.pub").write_text(f"ssh-ed25519 {key} root@spark\n")
    (tmp_path / "ssh_host_ed25519_key").write_text("private")
    (fingerprint,) = survey_host.host_keys(str(tmp_path)).values()
    assert fingerprint.startswith("SHA256:") and len(fingerprint) == 50
    assert survey_host.host_keys(str(tmp_path / "none")) == {}


def test_service(tmp_path: Path) -> None:
    root, release = tmp_path, tmp_path / "services" / "llm" / "releases" / "abc123"
    release.mkdir(parents=True)
    (release / "compose.yaml").write_text("x")
    (release.parent.parent / "current").symlink_to("releases/abc123")
    (release.parent.parent / "state.json").write_text('{"phase":"proven"}')
    (release.parent.parent / "secrets").mkdir()
    (release.parent.parent / "secrets" / "engine.yaml").write_text("api-key: geheim")
    found = survey_fleet.services({"root": str(root), "services": ["other"]})
    assert found["llm"]["current"] == "abc123" and found["llm"]["previous"] is None
    assert found["llm"]["releases"] == {"abc123": {}} and found["llm"]["state"] == {
        "phase": "proven"
    }
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert found["llm"]["files"] == {"compose.yaml": digest}
    assert len(found["llm"]["secret_sha256_prefix"]) == 12
    assert "geheim" not in json.dumps(found)
    assert found["other"]["current"] is None and found["other"]["files"] == {}


def test_lock_is_seen_and_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "llm.lock"
    assert survey_fleet.locked(str(path)) is False
    with path.open("w") as held:
        assert survey_fleet.locked(str(path)) is False
        fcntl.flock(held, fcntl.LOCK_EX)
        assert survey_fleet.locked(str(path)) is True
        fcntl.flock(held, fcntl.LOCK_UN)
        assert survey_fleet.locked(str(path)) is False


def test_models_of_every_commit_and_partials(tmp_path: Path) -> None:
    models = tmp_path / "models"
    commit = models / "o--name" / "c1"
    (commit / "sub").mkdir(parents=True)
    (commit / "sub" / "a.bin").write_bytes(b"123")
    (commit / survey_fleet.STAMP).write_text('{"schema":1}')
    part = models / ".partial" / "o--name" / "c1" / "a.bin.0.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 10000)
    request = {"models_dir": str(models), "model_dirs": [str(models / "o--name" / "main")]}
    found = survey_fleet.models(request)
    assert found[str(models / "o--name" / "main")] == {"stamp": None, "files": {}, "config": None}
    there = found[str(commit)]
    assert there["stamp"] == {"schema": 1} and there["files"]["sub/a.bin"][0] == 3
    assert survey_fleet.partials(request)["o--name/c1/a.bin.0.part"] >= 10000


def test_weights_by_hand(tmp_path: Path) -> None:
    local = tmp_path / "aeon-model"
    metadata = local / ".cache" / "huggingface" / "download"
    metadata.mkdir(parents=True)
    (local / "model.safetensors").write_bytes(b"12345")
    (metadata / "model.safetensors.metadata").write_text("c0ffee\netag\n1.5\n")
    (metadata / "half.bin.metadata").write_text("c0ffee\netag\n1.5\n")
    cached = tmp_path / ".cache/huggingface/hub/models--o--name/snapshots/beef"
    cached.mkdir(parents=True)
    (cached / "model.safetensors").write_bytes(b"123")
    (tmp_path / "photos").mkdir()
    found = survey_fleet.weights({"home": str(tmp_path), "repos": ["o/name"]})
    assert found == [
        {
            "dir": str(local),
            "repo": None,
            "commits": ["c0ffee"],
            "files": {"model.safetensors": 5},
        },
        {
            "dir": str(cached),
            "repo": "o/name",
            "commits": ["beef"],
            "files": {"model.safetensors": 3},
        },
    ]
    assert survey_fleet.weights({"home": str(tmp_path), "repos": []}) == []


def test_jobs_show_their_last_whole_event(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    lines = '{"event":"phase","t":1}\n{"event":"progress","t":2}\n{"event":"pro'
    (tmp_path / "jobs" / "fetch.jsonl").write_text(lines)
    (tmp_path / "jobs" / "fetch.json").write_text("{}")
    found = survey_fleet.jobs({"root": str(tmp_path)})
    assert found == {"fetch": {"last": {"event": "progress", "t": 2}}}


UNITS = """Id=sparkfleet-llm.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
NRestarts=2
Result=success
FragmentPath={path}
NeedDaemonReload=no
MainPID=812

Id=earlyoom.service
LoadState=not-found
ActiveState=inactive
SubState=dead
NRestarts=0
FragmentPath=
NeedDaemonReload=no
MainPID=0
"""


def test_units(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = tmp_path / "x.service"
    unit.write_text("x")
    (tmp_path / "out").write_text(UNITS.format(path=unit))
    program(path, "systemctl", f'echo "$@" > {tmp_path}/args; /bin/cat {tmp_path}/out')
    monkeypatch.setattr(survey_gpu, "SEARCH_PATH", str(path))
    monkeypatch.setenv("PATH", str(path))
    found = survey_fleet.units({"units": ["sparkfleet-llm.service"]})
    ours = found["sparkfleet-llm.service"]
    assert ours["active"] == "active" and ours["restarts"] == 2 and ours["pid"] == 812
    assert ours["file_sha256"].startswith("2d711642") and ours["needs_reload"] is False
    assert found["earlyoom.service"]["load"] == "not-found"
    assert "sparkfleet-llm.service docker.service" in (tmp_path / "args").read_text()


def test_units_without_systemd(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path, "systemctl", "echo 'Failed to connect to bus: Host is down' >&2; exit 1")
    monkeypatch.setattr(survey_gpu, "SEARCH_PATH", str(path))
    monkeypatch.setenv("PATH", str(path))
    with pytest.raises(RuntimeError, match="Host is down"):
        survey_fleet.units({})
