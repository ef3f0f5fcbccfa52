"""Docker's socket: frames, times, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkfleet.node.docker import Docker, DockerError, epoch, whole_lines

from .servers import DockerSocket, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DockerSocket]:
    server = DockerSocket(tmp_path / "docker.sock")
    with running(server):
        yield server


def test_a_container_is_read_and_an_absent_one_is_none(server: DockerSocket) -> None:
    docker = Docker(server.path)
    container = docker.container("qwen36-35b")
    assert container is not None and container.running and container.name == "qwen36-35b"
    assert container.run == "c0ffee@2026-11-02T10:00:00.123456789Z"
    assert docker.container("other") is None
    assert docker.containers({"a": "b"})[0].ports == (("127.0.0.1", 8000),)


@pytest.mark.parametrize("tty", [True, False], ids=["raw", "framed"])
def test_logs_come_as_lines_with_their_times(server: DockerSocket, tty: bool) -> None:
    server.tty = tty
    server.log.append(("2026-11-02T10:00:02.5Z", b"bad byte \xff"))
    lines = list(Docker(server.path).logs("c0ffee", since=server.started))
    assert [line for _, line in lines] == ["started", "bad byte \\xff"]
    assert "since=1793613600.123456789" in server.asked[-1][1]


def test_docker_that_is_not_there_and_docker_that_refuses(server: DockerSocket) -> None:
    with pytest.raises(DockerError, match="there is no socket"):
        Docker("/nonexistent.sock").containers()
    with pytest.raises(DockerError, match="removal is in progress"):
        Docker(server.path).remove("c0ffee")
    Docker(server.path).stop("c0ffee", 5)


def test_times() -> None:
    assert epoch("0001-01-01T00:00:00Z") == 0.0
    assert epoch("1970-01-01T00:01:00.5Z") == 60.5
    assert epoch("nonsense") == 0.0


def test_lines_cross_chunks() -> None:
    assert list(whole_lines(iter([b"a", b"b\nc", b"d\r\n", b"e"]))) == ["ab", "cd", "e"]
