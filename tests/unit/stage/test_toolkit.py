"""Mending a missing toolkit: what is changed, what is refused, what is put back."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from sparkfleet.node import apt as apt_module
from sparkfleet.node.apt import Apt, lock_holder
from sparkfleet.node.commands import Outcome
from sparkfleet.node.faults import Fault
from sparkfleet.node.pull import Engine
from sparkfleet.node.toolkit import Toolkit, lost_settings, registered

from .test_pull import Listener

INST = (
    "Reading package lists...\n"
    "Inst libnvidia-container1 (1.19.0-1 NVIDIA:stable [arm64])\n"
    "Inst nvidia-container-toolkit (1.19.0-1 NVIDIA:stable [arm64])\n"
    "Conf nvidia-container-toolkit (1.19.0-1 NVIDIA:stable [arm64])\n"
)
OTHER = {"Names": ["/immich"], "Labels": {}}
OURS = {"Names": ["/qwen"], "Labels": {"com.docker.compose.project": "sparkfleet-llm"}}
ABSENT = Outcome(100, err="E: Unable to locate package nvidia-container-toolkit")


class Box:
    """A host of the few things that the toolkit step touches."""

    def __init__(self, tmp_path: Path) -> None:
        self.daemon_json = tmp_path / "daemon.json"
        self.installed = False
        self.info: dict[str, Any] = {"Runtimes": {"runc": {}}}
        self.containers: list[dict[str, Any]] = []
        self.plan: list[Outcome] = []  # answers to simulations; then INST
        self.install: list[Outcome] = []  # answers to installations; then success
        self.ctk: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: {
            **config,
            "runtimes": {**config.get("runtimes", {}), "nvidia": {"path": "n"}},
        }
        self.ctk_outcome = Outcome(0)
        self.starts = True  # whether Docker starts with the new configuration
        self.calls: list[str] = []
        self.holders: list[str] = []
        self.events = Listener()
        self.now = 0.0

    def run(self, argv: Sequence[str], seconds: float) -> Outcome:
        words = " ".join(argv)
        if argv[0] == "dpkg-query":
            return Outcome(0, "ii |1.19.0-1") if self.installed else Outcome(1)
        if "--simulate" in words:
            return self.plan.pop(0) if self.plan else Outcome(0, INST)
        self.calls.append(words.rpartition("apt-get -q -y -o ")[2] if "apt-get" in words else words)
        if "install" in argv:
            outcome = self.install.pop(0) if self.install else Outcome(0)
            self.installed = outcome.ok
            return outcome
        if argv[0] == "nvidia-ctk":
            if self.ctk_outcome.ok:
                self.daemon_json.write_text(json.dumps(self.ctk(self.config)))
            return self.ctk_outcome
        if words == "systemctl restart docker.service":
            new = "nvidia" in self.config.get("runtimes", {})
            if new and not self.starts:
                return Outcome(1, err="Job for docker.service failed")
            if new:
                self.info["Runtimes"]["nvidia"] = {}
        return Outcome(0)

    @property
    def config(self) -> dict[str, Any]:
        return json.loads(self.daemon_json.read_text()) if self.daemon_json.exists() else {}

    def ask(self, method: str, route: str) -> Any:
        return self.info if route == "/info" else self.containers

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def mend(self, **request: Any) -> dict[str, Any]:
        apt = Apt(
            self.events,
            lock_wait=10,
            run=self.run,
            holder=lambda: self.holders.pop(0) if self.holders else None,
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        return Toolkit(
            request,
            self.events,
            engine=cast(Engine, self),
            apt=apt,
            run=self.run,
            daemon_json=self.daemon_json,
            clock=lambda: self.now,
            sleep=self.sleep,
        ).run()

    def refused(self, code: str, **request: Any) -> Fault:
        with pytest.raises(Fault) as caught:
            self.mend(**request)
        assert caught.value.code == code and caught.value.next
        return caught.value


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_missing_toolkit_is_installed_registered_and_known_to_docker(box: Box) -> None:
    box.daemon_json.write_text(json.dumps({"log-driver": "local", "runtimes": {"crun": {"a": 1}}}))
    assert box.mend() == {"changed": True, "version": "1.19.0-1", "restarted": True}
    assert box.config["log-driver"] == "local" and set(box.config["runtimes"]) == {"crun", "nvidia"}
    assert "nvidia" not in json.loads((box.daemon_json.parent / "daemon.json.sparkfleet.bak")
                                      .read_text())["runtimes"]  # fmt: skip
    assert [call.split()[0:2] for call in box.calls] == [
        ["DPkg::Lock::Timeout=10", "install"],
        ["nvidia-ctk", "runtime"],
        ["systemctl", "reset-failed"],
        ["systemctl", "restart"],
    ]
    box.calls.clear()
    assert box.mend() == {"changed": False, "version": "1.19.0-1", "restarted": False}
    assert box.calls == []


def test_a_host_without_a_configuration_gets_one(box: Box) -> None:
    box.mend()
    assert box.config == {"runtimes": {"nvidia": {"path": "n"}}}


def test_others_containers_are_named_before_anything_is_changed(box: Box) -> None:
    box.containers = [OTHER, OURS]
    fault = box.refused("would-stop")
    assert "immich" in fault.what and "qwen" not in fault.what and box.calls == []
    box.info["LiveRestoreEnabled"] = True
    assert box.mend()["changed"]


@pytest.mark.parametrize(("containers", "allowed"), [([OURS], False), ([OTHER], True), ([], False)])
def test_docker_is_restarted_where_that_is_nobodys_loss_or_was_allowed(
    box: Box, containers: list[dict[str, Any]], allowed: bool
) -> None:
    box.containers = containers
    assert box.mend(restart_docker=allowed)["restarted"]


@pytest.mark.parametrize(
    "line",
    [
        "Inst nvidia-driver-580-open [580.95.05] (580.126.09 NVIDIA)",
        "Inst libnvidia-compute-580 (580.126.09 NVIDIA)",
        "Inst linux-image-6.14.0-nvidia (1 Ubuntu)",
        "Inst nvidia-dkms-580-open (1 NVIDIA)",
        "Inst docker-ce [29.2.1] (29.3.0 Docker)",
        "Remv nvidia-container-runtime [3.14]",
    ],
)
def test_whatever_drags_a_driver_along_is_refused(box: Box, line: str) -> None:
    box.plan = [Outcome(0, INST + line + "\n")]
    fault = box.refused("would-touch-driver")
    assert line.split()[1] in fault.what and box.calls == []


def test_old_lists_are_read_anew(box: Box) -> None:
    box.plan = [ABSENT]
    assert box.mend()["changed"]
    assert box.calls[0].endswith("update")
    box.installed = False
    box.info["Runtimes"] = {}
    box.calls.clear()
    gone = "E: Failed to fetch http://x/y.deb 404  Not Found\nE: Unable to fetch some archives"
    box.install = [Outcome(100, err=gone)]
    assert box.mend()["changed"]
    assert [call.split()[1] for call in box.calls[:3]] == ["install", "update", "install"]


def test_no_source_has_it(box: Box) -> None:
    box.plan = [ABSENT, ABSENT]
    assert "nvidia-container-toolkit" in box.refused("no-package").what


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 8", "apt-lock"),
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "dpkg-broken"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk-full"),
        ("E: something else", "apt"),
    ],
)
def test_what_apt_says_has_a_meaning(box: Box, words: str, code: str) -> None:
    box.install = [Outcome(100, err=words)]
    box.refused(code)


def test_the_package_lock_is_waited_for_and_its_holder_named(box: Box) -> None:
    box.holders = ["unattended-upgr (process 8)"] * 3
    assert box.mend()["changed"]
    waits = [event["text"] for event in box.events.seen if event.get("phase") == "wait"]
    assert len(waits) == 1 and "unattended-upgr (process 8)" in waits[0]


def test_the_wait_is_bounded(box: Box) -> None:
    box.holders = ["unattended-upgr (process 8)"] * 1000
    fault = box.refused("apt-lock")
    assert "unattended-upgr" in fault.what and 10 <= box.now < 20 and box.calls == []


@pytest.mark.parametrize("text", ["{oops", "[]"])
def test_an_unreadable_configuration_is_left_alone(box: Box, text: str) -> None:
    box.daemon_json.write_text(text)
    box.refused("daemon-json")
    assert box.daemon_json.read_text() == text


def test_a_configuration_that_lost_the_owners_keys_is_put_back(box: Box) -> None:
    text = json.dumps({"data-root": "/data/docker", "runtimes": {"crun": {}}})
    box.daemon_json.write_text(text)
    box.ctk = lambda config: {"runtimes": {"nvidia": {}}}
    fault = box.refused("daemon-json")
    assert "data-root" in fault.why and "runtimes.crun" in fault.why
    assert box.daemon_json.read_text() == text
    assert not any("restart" in call for call in box.calls)


def test_a_tool_that_fails_leaves_no_configuration(box: Box) -> None:
    box.ctk_outcome = Outcome(1, err="unable to load config")
    assert "unable to load config" in box.refused("daemon-json").why
    assert not box.daemon_json.exists()


def test_docker_is_never_left_down(box: Box) -> None:
    text = json.dumps({"log-driver": "local"})
    box.daemon_json.write_text(text)
    box.starts = False
    fault = box.refused("docker-restart")
    assert "runs again" in fault.why and box.daemon_json.read_text() == text


def test_a_docker_that_does_not_see_the_runtime(box: Box) -> None:
    box.ctk = lambda config: {"runtimes": {"nvidia": {}}}
    box.info = dict(box.info, Runtimes={})
    original = box.run

    def run(argv: Sequence[str], seconds: float) -> Outcome:
        outcome = original(argv, seconds)
        box.info["Runtimes"] = {}
        return outcome

    box.run = run  # type: ignore[method-assign]
    assert "does not list" in box.refused("docker-restart").why


def test_registered_by_runtime_or_device() -> None:
    assert registered({"Runtimes": {"nvidia": {}}})
    assert registered({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]})
    assert not registered({"Runtimes": {"runc": {}}, "DiscoveredDevices": None})


def test_lost_settings() -> None:
    before = {"a": 1, "runtimes": {"x": 1}}
    assert lost_settings(before, {"a": 1, "b": 2, "runtimes": {"x": 1, "nvidia": {}}}) == []
    assert lost_settings(before, {"a": 2, "runtimes": {"x": 2}}) == ["a", "runtimes.x"]


def test_the_holder_of_a_real_lock_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    monkeypatch.setattr(apt_module, "LOCKS", (tmp_path / "absent", lock))
    assert lock_holder() is None
    code = "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,2); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout
    child.stdout.readline()
    try:
        assert (lock_holder() or "").endswith(f"(process {child.pid})")
    finally:
        child.communicate(b"\n")
    assert lock_holder() is None
    with lock.open("w") as file:  # the question did not take it away from anyone
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
