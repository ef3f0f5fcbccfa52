"""The fetch job around the download: directories, token, container. `docker` is a stand-in that
runs the download right here, in the directories that were mounted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from sparkfleet.node import fetch as fetch_module
from sparkfleet.node.docker import DockerApi
from sparkfleet.node.faults import Fault
from sparkfleet.node.fetch import Fetch

from .hub_server import COMMIT, HubServer, Repo, entry
from .test_pull import Listener

FILES = {"model.safetensors": b"w" * 5000, "config.json": b"{}"}

DOCKER = """#!{python}
import json, os, subprocess, sys
from pathlib import Path
args, base = sys.argv[1:], Path({base!r})
with open(base / "argv.jsonl", "a") as log:
    log.write(json.dumps(args) + "\\n")
lose = base / "lose"
if lose.exists():
    code = int(lose.read_text())
    lose.unlink()
    print("docker: something odd", file=sys.stderr)
    sys.exit(code)
pairs = list(zip(args, args[1:]))
mounts = dict(reversed(value.split(":")[:2]) for key, value in pairs if key == "--volume")
env = dict(value.split("=", 1) for key, value in pairs if key == "--env")
(base / "seen.json").write_text(json.dumps([
    [target, os.stat(source).st_mode & 0o777, Path(source).is_dir() or Path(source).read_text()]
    for target, source in mounts.items()]))
request = sys.stdin.read()
for target, source in mounts.items():
    request = request.replace('"' + target + '"', '"' + source + '"')
env.update(PATH=os.environ["PATH"], HOME=str(base), HF_HOME=str(base / "hf"))
child = subprocess.run([{python!r}, args[-1]], input=request, text=True, env=env)
sys.exit(child.returncode)
"""


class Remover:
    """The one call of Docker's API that a fetch makes."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove(self, container: str) -> None:
        self.removed.append(container)


class Bench:
    def __init__(self, tmp_path: Path, hub: HubServer) -> None:
        self.base, self.hub = tmp_path, hub
        self.models_dir = tmp_path / "models"
        self.dir = self.models_dir / "o--m" / COMMIT
        self.events, self.docker = Listener(), Remover()

    def request(self, **more: Any) -> dict[str, Any]:
        files = [entry(path, data) for path, data in FILES.items()]
        return {
            "image": "r/engine@sha256:" + "a" * 64,
            "uid": os.getuid(),
            "gid": os.getgid(),
            "models_dir": str(self.models_dir),
            "endpoint": self.hub.url,
            "token_file": None,
            "models": [{"repo": "o/m", "commit": COMMIT, "dir": str(self.dir), "files": files}],
            "reserve": 0,
            "tries": 1,
            **more,
        }

    def fetch(self, **more: Any) -> dict[str, Any]:
        job = Fetch(
            self.request(**more),
            self.events,
            name="fetch",
            docker=cast(DockerApi, self.docker),
            run_dir=self.base / "run",
            sleep=lambda seconds: None,
        )
        return job.run()

    @property
    def argvs(self) -> list[list[str]]:
        lines = (self.base / "argv.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def bench(tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Bench:
    hub.repos["o/m"] = Repo(dict(FILES))
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(python=sys.executable, base=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(fetch_module, "PROGRAMS", str(fetch_module.HERE))
    return Bench(tmp_path, hub)


def test_models_are_fetched_in_the_image_with_few_rights(bench: Bench) -> None:
    result = bench.fetch()
    assert sorted(result["fetched"]) == sorted(FILES)
    assert all((bench.dir / path).read_bytes() == data for path, data in FILES.items())
    assert [event["event"] for event in bench.events.seen if event["event"] == "progress"]
    (argv,) = bench.argvs
    assert argv[:2] == ["run", "--rm"] and "--privileged" not in argv
    for words in (
        ["--user", f"{os.getuid()}:{os.getgid()}"],
        ["--cap-drop", "ALL"],
        ["--security-opt", "no-new-privileges"],
        ["--pull", "never"],
        ["--env", "HF_HUB_OFFLINE=0"],
        ["--name", "sparkfleet-fetch-fetch"],
    ):
        assert any(argv[at : at + 2] == words for at in range(len(argv))), words
    assert argv[-2:] == ["r/engine@sha256:" + "a" * 64, str(fetch_module.HERE / "download.py")]
    assert bench.docker.removed == ["sparkfleet-fetch-fetch"], "a leftover would hold the name"


def test_a_token_travels_in_a_file_only_and_is_gone_afterwards(bench: Bench) -> None:
    bench.hub.repos["o/m"] = Repo(dict(FILES), private=True, token="s3cret")
    token = bench.base / "token"
    token.write_text("s3cret")
    bench.fetch(token_file=str(token))
    assert "s3cret" not in json.dumps(bench.argvs) + json.dumps(bench.events.seen)
    seen = json.loads((bench.base / "seen.json").read_text())
    assert ["/run/sparkfleet-token", 0o600, "s3cret"] in seen
    assert list((bench.base / "run" / "tokens").iterdir()) == []


def test_what_fails_inside_is_the_jobs_failure(bench: Bench) -> None:
    bench.hub.repos["o/m"] = Repo(dict(FILES), private=True, token="s3cret")
    with pytest.raises(Fault) as caught:
        bench.fetch()
    assert caught.value.code == "hub-401" and "o/m" in str(caught.value)


@pytest.mark.parametrize("code", [137, 255])
def test_a_container_that_is_lost_is_started_again(bench: Bench, code: int) -> None:
    (bench.base / "lose").write_text(str(code))
    assert bench.fetch()["files"] == 2
    assert len(bench.argvs) == 2 and len(bench.docker.removed) == 2


@pytest.mark.parametrize("code", [125, 127])
def test_a_container_that_can_not_start_is_said_at_once(bench: Bench, code: int) -> None:
    (bench.base / "lose").write_text(str(code))
    with pytest.raises(Fault, match=f"exit status {code}") as caught:
        bench.fetch()
    assert "something odd" in caught.value.why and len(bench.argvs) == 1


def test_a_restart_between_two_runs_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("one\n")
    monkeypatch.setattr(fetch_module, "BOOT_ID", boot)
    job = Fetch(bench.request(), bench.events, name="f", docker=cast(DockerApi, bench.docker))
    job._make_directories()
    assert [job._same_boot(), job._same_boot()] == [False, True]
    boot.write_text("two\n")
    assert [job._same_boot(), job._same_boot()] == [False, True]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_directories_are_the_owners(bench: Bench) -> None:
    bench.models_dir.mkdir()
    job = Fetch(
        bench.request(uid=12345, gid=12346),
        bench.events,
        name="f",
        docker=cast(DockerApi, bench.docker),
    )
    job._make_directories()
    owned = [bench.models_dir, bench.dir, bench.dir.parent, bench.models_dir / ".partial" / "o--m"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in owned} == {(12345, 12346)}
    os.chown(bench.models_dir, 777, 777)  # someone's own directory stays his
    job._make_directories()
    assert bench.models_dir.stat().st_uid == 777


def test_a_model_outside_the_models_directory_is_refused(bench: Bench) -> None:
    request = bench.request()
    request["models"][0]["dir"] = "/etc"
    with pytest.raises(ValueError, match="not in the subpath"):
        Fetch(
            request, bench.events, name="f", docker=cast(DockerApi, bench.docker)
        )._make_directories()
