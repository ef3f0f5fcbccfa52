"""The download, as the container runs it, with the real hub client against a hub on loopback.

SPARKFLEET_HUB_PYTHONS may name further interpreters, separated by colons, whose huggingface_hub is
another release: every test then runs with each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.file_download
import pytest

import sparkfleet.node.download as download_module
from sparkfleet.node import partfile
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.spec.lock import LockedModel, is_staged

from .hub_server import COMMIT, HubServer, Repo, cut_after, entry, forever, hang_after, status

BIG = random.Random(1).randbytes(9 * 1024 * 1024)
FILES = {"model.safetensors": BIG, "sub/config.json": b'{"a": 1}', "empty.txt": b""}
PYTHONS = [sys.executable, *filter(None, os.environ.get("SPARKFLEET_HUB_PYTHONS", "").split(":"))]


@dataclass
class Outcome:
    events: list[dict[str, Any]]
    err: str

    @property
    def done(self) -> dict[str, Any]:
        assert self.events and self.events[-1]["event"] == "done", self.err
        return self.events[-1]

    @property
    def code(self) -> str:
        assert not self.done["ok"]
        return str(self.done["error"]["code"])

    @property
    def log(self) -> str:
        return "\n".join(event["text"] for event in self.events if event["event"] == "log")


class Listener(Events):
    """Keeps the events."""

    def __init__(self) -> None:
        super().__init__(None)
        self.events: list[dict[str, Any]] = []

    def write(self, event: str, fields: Any) -> None:
        self.events.append({"event": event, **fields})


@dataclass
class Box:
    """A models directory and the program that fills it."""

    models_dir: Path
    hub: HubServer
    python: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def dir(self) -> Path:
        return self.models_dir / "o--m" / COMMIT

    @property
    def partial(self) -> Path:
        return self.models_dir / ".partial" / "o--m" / COMMIT

    @property
    def part(self) -> Path:
        digest = hashlib.sha256(BIG).hexdigest()[:16]
        return self.partial / f"model.safetensors.{digest}.part"

    def model(self, files: dict[str, bytes] = FILES, **more: Any) -> dict[str, Any]:
        rows = [entry(path, data) for path, data in files.items()]
        return {"repo": "o/m", "commit": COMMIT, "dir": str(self.dir), "files": rows, **more}

    def request(self, *models: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "models_dir": str(self.models_dir),
            "endpoint": self.hub.url,
            "models": list(models) or [self.model()],
            "same_boot": True,
            "pause": 0.05,
            "reserve": 0,
            **self.more,
            **more,
        }

    def start(self, *models: dict[str, Any], **more: Any) -> subprocess.Popen[str]:
        env = {
            "PATH": os.environ["PATH"],
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": "2",
            "HF_HOME": str(self.models_dir.parent / "hf"),
        }
        process = subprocess.Popen(
            [self.python, download_module.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert process.stdin
        process.stdin.write(json.dumps(self.request(*models, **more)))
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, *models: dict[str, Any], **more: Any) -> Outcome:
        if self.python == sys.executable:  # in this process: one import of the client serves all
            listener = Listener()
            download_module.perform(self.request(*models, **more), listener)
            return Outcome(listener.events, "")
        process = self.start(*models, **more)
        out, err = process.communicate(timeout=90)
        return Outcome([json.loads(line) for line in out.splitlines()], err)

    def content(self, files: dict[str, bytes] = FILES) -> bool:
        return all((self.dir / path).read_bytes() == data for path, data in files.items())

    def staged(self, model: dict[str, Any] | None = None) -> bool:
        """What the controller would conclude from a survey."""
        raw = model or self.model()
        locked = LockedModel.model_validate(
            {"repo": raw["repo"], "commit": raw["commit"], "date": "", "files": raw["files"]}
        )
        found = {
            str(path.relative_to(self.dir)): [path.stat().st_size, path.stat().st_mtime_ns]
            for path in self.dir.rglob("*")
            if path.is_file()
        }
        stamp = self.dir / ".sparkfleet-stamp.json"
        return is_staged(json.loads(stamp.read_text()) if stamp.exists() else None, found, locked)


class Impatient:
    """The time module, without its pauses."""

    time, monotonic = time.time, time.monotonic

    @staticmethod
    def sleep(seconds: float) -> None:
        pass


@pytest.fixture(params=PYTHONS, ids=lambda path: Path(path).parent.parent.name)
def box(
    request: pytest.FixtureRequest, tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> Box:
    # The client's own pauses between its tries are not what is tested here.
    monkeypatch.setattr(huggingface_hub.file_download, "time", Impatient)
    monkeypatch.setattr(huggingface_hub.utils._http, "time", Impatient)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2)
    hub.repos["o/m"] = Repo(dict(FILES))
    return Box(tmp_path / "models", hub, request.param)


def test_files_arrive_verified_and_stamped(box: Box) -> None:
    outcome = box.run()
    assert outcome.done["ok"], outcome
    assert box.content() and box.staged() and not box.partial.exists()
    assert {(box.dir / path).stat().st_mode & 0o777 for path in FILES} == {0o644}
    assert (box.dir / "sub").stat().st_mode & 0o777 == 0o755
    assert outcome.done["result"]["bytes"] == len(BIG) + 8
    progress = [event for event in outcome.events if event["event"] == "progress"]
    assert progress[-1]["done"] == progress[-1]["total"] == len(BIG) + 8
    assert box.hub.gets("model.safetensors")[0][2] is None
    # The biggest file is asked for first.
    assert box.hub.requests[0][1].endswith("model.safetensors") or len(box.hub.requests) > 1


def test_the_second_run_asks_and_reads_nothing(box: Box) -> None:
    box.run()
    box.hub.requests.clear()
    before = {path: path.stat().st_mtime_ns for path in box.dir.rglob("*")}
    again = box.run()
    assert again.done["result"] == {"files": 3, "fetched": [], "bytes": 0}
    assert not box.hub.requests
    stamp = box.dir / ".sparkfleet-stamp.json"
    changed = {p for p, mtime in before.items() if p.stat().st_mtime_ns != mtime}
    assert changed <= {stamp, box.dir}


def test_a_killed_download_goes_on_at_the_byte(box: Box, eventually: Callable[..., None]) -> None:
    box.hub.faults["model.safetensors"] = [hang_after(5 * 1024 * 1024)]
    process = box.start()
    eventually(lambda: box.part.exists() and box.part.stat().st_size >= 4 * 1024 * 1024, 30)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    here = box.part.stat().st_size
    box.hub.requests.clear()
    outcome = box.run()
    assert outcome.done["ok"] and box.content() and box.staged()
    assert [get[2] for get in box.hub.gets("model.safetensors")] == [f"bytes={here}-"]
    assert outcome.done["result"]["bytes"] <= len(BIG) + 8 - here
    assert not box.hub.gets("sub/config.json"), "verified before the kill, asked for again"


def test_after_a_power_cut_only_synced_bytes_count(box: Box) -> None:
    box.partial.mkdir(parents=True)
    # The kernel kept the length, not the content: less than one sync step was ever safe.
    box.part.write_bytes(BIG[:1000] + bytes(3_000_000))
    outcome = box.run(same_boot=False)
    assert outcome.done["ok"] and box.content()
    assert [get[2] for get in box.hub.gets("model.safetensors")] == [None]


def test_holes_that_nobody_knew_of_are_found(box: Box) -> None:
    box.partial.mkdir(parents=True)
    box.part.write_bytes(bytes(3_000_000))
    outcome = box.run()
    assert outcome.done["ok"] and box.content() and "once more" in outcome.log
    assert [get[2] for get in box.hub.gets("model.safetensors")] == ["bytes=3000000-", None]


def test_a_broken_connection_is_taken_up_where_it_broke(box: Box) -> None:
    box.hub.faults["model.safetensors"] = [cut_after(3_000_000), cut_after(2_000_000)]
    outcome = box.run()
    assert outcome.done["ok"] and box.content()
    ranges = [get[2] for get in box.hub.gets("model.safetensors")]
    assert ranges[0] is None and len(ranges) == 3 and all(ranges[1:])
    assert outcome.done["result"]["bytes"] < len(BIG) + 1_100_000


def test_a_server_without_ranges_still_ends_right(box: Box) -> None:
    box.hub.faults["model.safetensors"] = [cut_after(3_000_000)]
    box.hub.ignore_range = True
    outcome = box.run()
    assert outcome.done["ok"] and box.content(), outcome


def test_wrong_bytes_are_named_and_the_rest_is_kept(box: Box) -> None:
    box.hub.served["model.safetensors"] = bytes(len(BIG))
    outcome = box.run()
    assert outcome.code == "wrong-bytes"
    assert "model.safetensors of o/m" in outcome.done["error"]["what"]
    assert len(box.hub.gets("model.safetensors")) == 2
    assert (box.dir / "sub/config.json").exists() and not (box.dir / "model.safetensors").exists()
    assert not box.staged()
    box.hub.served.clear()
    box.hub.requests.clear()
    outcome = box.run()
    assert outcome.done["ok"] and outcome.done["result"]["fetched"] == ["model.safetensors"]
    assert not box.hub.gets("config.json")


def test_a_short_file_is_named(box: Box) -> None:
    box.hub.served["model.safetensors"] = BIG[:-10]
    assert box.run(tries=2).code == "short-file"


def test_too_long_a_file_is_not_taken(box: Box) -> None:
    box.hub.served["model.safetensors"] = BIG + b"more"
    assert box.run().code == "wrong-bytes"


@pytest.mark.parametrize("damage", ["short", "other"])
def test_a_damaged_file_alone_is_fetched_again(box: Box, damage: str) -> None:
    box.run()
    target = box.dir / "sub/config.json"
    target.write_bytes(b"{}" if damage == "short" else b'{"a": 2}')
    assert not box.staged()
    box.hub.requests.clear()
    outcome = box.run()
    assert outcome.done["result"]["fetched"] == ["sub/config.json"] and box.content()
    assert str(target) in outcome.log and not box.hub.gets("model.safetensors")
    assert box.staged()


def test_a_same_size_change_with_the_old_time_is_found_when_asked_to_verify(box: Box) -> None:
    box.run()
    target = box.dir / "sub/config.json"
    before = target.stat()
    target.write_bytes(b'{"a": 3}')
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert box.run(verify=True).done["result"]["fetched"] == ["sub/config.json"]
    assert box.content()


def test_files_of_someone_else_are_verified_and_taken(box: Box) -> None:
    box.dir.mkdir(parents=True)
    (box.dir / "model.safetensors").write_bytes(BIG)
    outcome = box.run()
    assert outcome.done["ok"] and box.staged()
    assert not box.hub.gets("model.safetensors")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (status(401), "hub-401"),
        (status(403, X_Error_Code="GatedRepo"), "hub-403"),
        (status(404, X_Error_Code="EntryNotFound"), "hub-404"),
        (status(500), "hub-5xx"),
        (status(429, Retry_After="0"), "hub-429"),
    ],
)
def test_refusals_have_codes_and_end(box: Box, answer: Any, code: str) -> None:
    box.hub.faults["model.safetensors"] = [forever(answer)]
    outcome = box.run(tries=1)
    assert outcome.code == code
    error = outcome.done["error"]
    assert error["what"] and error["next"] and "o/m" in error["where"]


def test_passing_trouble_passes(box: Box) -> None:
    box.hub.faults["model.safetensors"] = [status(503), status(500), status(429, Retry_After="0")]
    assert box.run().done["ok"] and box.content()


def test_nothing_listens(box: Box) -> None:
    box.hub.close()
    outcome = box.run(tries=1)
    assert outcome.code == "unreachable" and not box.staged()


def test_a_hub_that_goes_silent_is_given_up(box: Box) -> None:
    box.hub.faults["model.safetensors"] = [forever(hang_after(100_000))]
    began = time.monotonic()
    outcome = box.run(stall=1.5)
    assert outcome.code == "stalled" and time.monotonic() - began < 30


def test_the_token_goes_only_where_it_is_wanted(box: Box, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    box.hub.repos["o/m"] = Repo(dict(FILES), private=True, token="s3cret")
    box.hub.repos["p/q"] = Repo({"a.bin": b"x" * 2000})
    other = {
        "repo": "p/q",
        "commit": COMMIT,
        "dir": str(box.models_dir / "p--q" / COMMIT),
        "files": [entry("a.bin", b"x" * 2000)],
    }
    outcome = box.run(box.model(), other, token_file=str(token))
    assert outcome.done["ok"] and box.content()
    assert all(get[3] is None for get in box.hub.gets("a.bin"))
    assert "s3cret" not in json.dumps(outcome.events) + outcome.err
    assert box.run(box.model(), other, token_file=str(tmp_path / "no"), verify=True).code == "token"


def test_a_private_repository_without_a_token(box: Box) -> None:
    box.hub.repos["o/m"] = Repo(dict(FILES), private=True, token="s3cret")
    assert box.run().code == "hub-401"


def test_too_small_a_disk_is_said_before_anything_is_fetched(box: Box) -> None:
    outcome = box.run(reserve=10**15)
    assert outcome.code == "disk-full" and "9.4 MB are still to come" in str(outcome.done)
    assert not box.hub.requests


def test_leftovers_of_other_content_are_removed(box: Box) -> None:
    box.partial.mkdir(parents=True)
    stray = box.partial / "model.safetensors.0000000000000000.part"
    stray.write_bytes(b"x")
    outcome = box.run()
    assert outcome.done["ok"] and str(stray) in outcome.log and not box.partial.exists()


def test_strange_weights_are_pointed_at(box: Box) -> None:
    box.dir.mkdir(parents=True)
    (box.dir / "model-00001-of-00009.safetensors").write_bytes(b"old")
    assert "model-00001-of-00009.safetensors" in box.run().log


def test_a_commit_that_changes_a_readme_does_not_fetch_the_weights_again(box: Box) -> None:
    box.run()
    other = "f" * 40
    files = {**FILES, "README.md": b"new words"}
    box.hub.repos["o/m"] = Repo(files)
    model = {**box.model(files), "commit": other, "dir": str(box.dir.parent / other)}
    box.hub.requests.clear()
    outcome = box.run(model)
    fetched = [get[1] for get in box.hub.requests]
    assert all(path.endswith("README.md") for path in fetched) and fetched
    assert outcome.code == "hub-404", (
        "the stand-in knows one commit only, which is beside the point"
    )
    new = box.dir.parent / other / "model.safetensors"
    assert new.samefile(box.dir / "model.safetensors")
    (box.dir / "sub/config.json").write_bytes(b"{ 'b': }")  # touched since: no longer vouched for
    new.parent.joinpath("sub/config.json").unlink()
    shutil.rmtree(box.models_dir / ".partial")
    box.run(model)
    assert not new.parent.joinpath("sub/config.json").exists()


def safetensors(*names: str) -> bytes:
    header = json.dumps({name: {"dtype": "F32", "shape": [0]} for name in names}).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    ("names", "ok"),
    [
        (("model.visual.a", "model.language_model.layers.0"), True),
        (("model.visual.a", "model.language_model.visual.b"), False),
        (("model.language_model.layers.0",), False),
    ],
)
def test_broken_uploads_are_told_by_their_tensor_names(
    box: Box, names: tuple[str, ...], ok: bool
) -> None:
    files = {"model.safetensors": safetensors(*names)}
    box.hub.repos["o/m"] = Repo(files)
    rules = {
        "require": ["model.visual."],
        "forbid": ["model.language_model.visual"],
        "reason": "images come back as exclamation marks",
    }
    outcome = box.run(box.model(files, tensors=rules))
    assert outcome.done["ok"] is ok and box.staged(box.model(files)) is ok
    if not ok:
        assert outcome.code == "wrong-tensors" and "exclamation" in str(outcome.done)


@pytest.mark.parametrize("path", ["../evil", "/evil", "a/../../evil", ".sparkfleet-stamp.json"])
def test_no_file_leaves_its_directory(box: Box, path: str) -> None:
    model = box.model()
    model["files"][0]["path"] = path
    assert box.run(model).code == "request" and not box.hub.requests


class TestPartFile:
    """Growth, trust and sync of one unfinished file."""

    STEP = 1000

    @pytest.fixture(autouse=True)
    def _small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partfile, "SYNC_STEP", self.STEP)

    def open(self, path: Path, data: bytes, same_boot: bool = True) -> partfile.PartFile:
        digest = hashlib.sha256(data).hexdigest()
        make = lambda: partfile.Hasher(len(data), digest, None)  # noqa: E731
        return partfile.PartFile(path, len(data), make, same_boot=same_boot)

    @pytest.mark.parametrize(
        ("size", "trusted"), [(0, 0), (1, 0), (999, 0), (1000, 0), (1001, 1000), (2500, 2000)]
    )
    def test_what_a_power_cut_leaves(self, tmp_path: Path, size: int, trusted: int) -> None:
        path = tmp_path / "p"
        path.write_bytes(bytes(size))
        assert self.open(path, bytes(3000), same_boot=False).size == trusted
        assert path.stat().st_size == trusted

    def test_each_step_is_synced_before_the_next_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, synced = tmp_path / "p", []
        monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(path.stat().st_size))
        part = self.open(path, bytes(3500))
        part.write(bytes(700))
        part.write(bytes(2500))
        assert synced == [1000, 2000, 3000]

    def test_more_than_the_file_may_have(self, tmp_path: Path) -> None:
        part = self.open(tmp_path / "p", b"abc")
        with pytest.raises(partfile.Overrun):
            part.write(b"abcd")
        part.write(b"abc")
        assert part.hash.matches

    def test_two_do_not_write_one_file(self, tmp_path: Path) -> None:
        with contextlib.closing(self.open(tmp_path / "p", b"abc")) as first:
            first.write(b"a")
            with pytest.raises(Fault, match="very file"):
                self.open(tmp_path / "p", b"abc")
        assert self.open(tmp_path / "p", b"abc").size == 1

    def test_git_names_a_file_by_its_blob(self) -> None:
        hasher = partfile.Hasher(6, None, "ce013625030ba8dba906f756967f9e9ca394464a")
        hasher.update(b"hello\n")
        assert hasher.matches
