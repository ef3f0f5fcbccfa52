"""Bringing up the gateway: judged first, put back where it does not come to serve."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from sparkfleet.node import gateway as job
from sparkfleet.node import servers
from sparkfleet.node.apt import Apt
from sparkfleet.node.commands import Outcome
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault

UNIT, PORTS = "sparkfleet-gateway.service", "sparkfleet-gateway.socket"


class Box:
    """A host with as much of HAProxy and systemd as the job sees."""

    def __init__(self, root: Path) -> None:
        self.root, self.incoming, self.etc = root, root / "incoming", root / "etc"
        self.units, self.program = root / "units", root / "haproxy"
        for directory in (self.incoming, self.etc, self.units):
            directory.mkdir()
        self.program.touch()
        self.said: list[list[str]] = []
        self.active, self.accepts, self.takes_up = False, True, True
        self.pid = 100
        self.now = 0.0
        self.installed: list[str] = []
        self.judged = ""
        self.port = 0
        self.agents: Callable[[], dict[str, str]] = lambda: {"spark-a": "L7OK"}

    def new(
        self, config: str = "new", certificate: str | None = None, ports: str = "ports"
    ) -> None:
        self.incoming.mkdir(exist_ok=True)
        (self.incoming / "haproxy.cfg").write_text(f"{config}\nbind fd@3 crt {self.etc}/tls.pem")
        (self.incoming / UNIT).write_text("unit")
        (self.incoming / PORTS).write_text(ports)
        if certificate is not None:
            path = self.incoming / "tls.pem"
            path.write_text(certificate)
            path.chmod(0o600)

    def run(self, argv: Sequence[str], seconds: float) -> Outcome:
        self.said.append(list(argv))
        match list(argv):
            case [_, "-c", "-q", "-f", path]:
                self.judged = Path(path).read_text()
                return Outcome(0) if self.accepts else Outcome(1, err="unknown keyword 'x'")
            case ["systemctl", "is-active", *_]:
                return Outcome(0 if self.active else 3)
            case ["systemctl", "start" | "reload", *_]:
                self.active = True
                self.pid += self.takes_up
            case ["systemctl", "stop", *_]:
                self.active = False
            case ["journalctl", *_]:
                return Outcome(0, "cannot bind socket\n")
        return Outcome(0)

    def install(self, package: str, *, missing: str) -> None:
        self.installed.append(package)
        self.program.touch()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def job(self) -> dict[str, Any]:
        request = job.Request.parse(
            {
                "incoming": str(self.incoming),
                "config": str(self.etc / "haproxy.cfg"),
                "certificate": str(self.etc / "tls.pem"),
                "unit": UNIT,
                "ports": PORTS,
                "socket": str(self.root / "run/admin.sock"),
                "endpoints": [["127.0.0.1", self.port]],
            }
        )
        return job.Gateway(
            request,
            Events(None),
            apt=cast(Apt, self),
            run=self.run,
            program=self.program,
            units=self.units,
            clock=lambda: self.now,
            sleep=self.sleep,
        ).bring_up()

    def answer(self, command: str) -> str:
        if command == "show info":
            return f"Pid: {self.pid}\nStopping: 0\n"
        rows = "\n".join(f"llm,{name},2,{said}" for name, said in self.agents().items())
        return f"# pxname,svname,type,agent_status\nllm,BACKEND,1,\n{rows}\n"

    def did(self, *words: str) -> bool:
        return any(argv[: len(words)] == list(words) for argv in self.said)

    @property
    def config(self) -> str:
        return (self.etc / "haproxy.cfg").read_text()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    one = Box(tmp_path)
    monkeypatch.setattr(servers, "ask", lambda path, command: one.answer(command))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one.port = listener.getsockname()[1]
        yield one


def test_a_first_start(box: Box) -> None:
    box.new(certificate="key")
    box.program.unlink()
    assert box.job() == {"installed": True, "how": "started", "silent": []}
    assert box.installed == ["haproxy"]
    assert box.did("systemctl", "disable", "--now", "haproxy.service")
    assert box.did("systemctl", "enable", "--quiet", UNIT, PORTS)
    assert (box.etc / "tls.pem").stat().st_mode & 0o777 == 0o600
    judged = f"new\nbind 127.0.0.1:{box.port} crt {box.incoming}/tls.pem"
    assert box.judged == judged, "with the new certificate, and without sockets to inherit"
    assert not box.incoming.exists() and len(list(box.etc.iterdir())) == 2, "nothing is left over"


def test_a_change_is_a_reload_and_the_owners_own_haproxy_is_left_alone(box: Box) -> None:
    box.new()
    box.job()
    box.said.clear()
    box.new("newer")
    assert box.job() == {"installed": False, "how": "reloaded", "silent": []}
    assert box.did("systemctl", "reload", UNIT) and not box.did("systemctl", "disable")
    assert box.config.startswith("newer")


def test_what_haproxy_refuses_never_takes_the_place_of_what_runs(box: Box) -> None:
    box.new()
    box.job()
    box.said.clear()
    box.new("worse")
    box.accepts = False
    with pytest.raises(Fault, match="does not accept"):
        box.job()
    assert box.config.startswith("new\n") and not box.did("systemctl")


def test_one_that_does_not_come_to_serve_is_put_back(box: Box) -> None:
    box.new(certificate="old key")
    box.job()
    box.new("worse")
    box.takes_up = False
    with pytest.raises(Fault, match="the old one was put back") as caught:
        box.job()
    assert "cannot bind socket" in caught.value.why
    assert box.config.startswith("new\n")
    assert (box.etc / "tls.pem").read_text() == "old key"
    assert box.now <= job.SERVE + 1, "bounded"


def test_a_first_one_that_fails_leaves_nothing_that_looks_done(box: Box) -> None:
    box.new()
    box.takes_up = False
    box.pid = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers, "ask", lambda path, command: "")
        with pytest.raises(Fault):
            box.job()
    assert list(box.etc.iterdir()) == [] and list(box.units.iterdir()) == []


def test_other_ports_take_a_stop_and_are_put_back_where_they_fail(box: Box) -> None:
    box.new()
    box.job()
    box.said.clear()
    box.new(ports="other")
    assert box.job()["how"] == "restarted"
    acts = [argv[1:] for argv in box.said if argv[:1] == ["systemctl"] and argv[1] in ("stop",
            "start", "reload")]  # fmt: skip
    assert acts == [["stop", UNIT], ["stop", PORTS], ["start", PORTS], ["start", UNIT]]
    box.new(ports="taken")
    box.port = 1
    with pytest.raises(Fault, match="put back"):
        box.job()
    assert (box.units / PORTS).read_text() == "other" and box.active


def test_agents_that_do_not_answer_are_named_once_all_were_asked(box: Box) -> None:
    def agents() -> dict[str, str]:
        asked = box.now > 1
        return {
            "spark-a": "* L7OK" if not asked else "L7OK",
            "spark-b": "INI" if not asked else "L4TOUT",
            "spark-c": "L4CON",
            "spark-d": "L7RSP",
        }

    box.agents = agents
    box.new()
    assert box.job()["silent"] == ["spark-b", "spark-c"]
    box.agents = lambda: {"spark-a": "INI"}
    box.new()
    assert box.job()["silent"] == [] and box.now < 60, "bounded"


def test_a_certificate_that_is_no_longer_wanted_goes(box: Box) -> None:
    box.new(certificate="key")
    box.job()
    box.new()
    box.job()
    assert not (box.etc / "tls.pem").exists()


def test_the_state_of_the_servers_is_kept_whole_or_left(tmp_path: Path) -> None:
    path, file = tmp_path / "admin.sock", tmp_path / "servers"
    file.write_text("before")
    assert "stays as it was" in servers.save(path, file) and file.read_text() == "before"
    answers = [b"1\n# be_id\n3 llm 1 a\n", b"Unknown command\n"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for text in answers:
                link, _ = listener.accept()
                with link:
                    assert link.recv(100) == b"show servers state\n"
                    link.sendall(text)

        thread = threading.Thread(target=serve)
        thread.start()
        assert servers.save(path, file) == "" and file.read_text() == answers[0].decode()
        assert "unknown here" in servers.save(path, file)
        assert file.read_text() == answers[0].decode()
        thread.join(5)
