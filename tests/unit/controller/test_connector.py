"""The sudo password goes through standard input and never into what the command reads."""

import logging
import os
import socket
import subprocess
from pathlib import Path

import pytest
from pyinfra.api.output import format_text

from sparkfleet.connector import Greeting, sudo_command, tuned_transport

ASKS = """#!/bin/sh
# Stands for a sudo that wants the password `open` on standard input.
while [ "${1#-}" != "$1" ]; do [ "$1" = -p ] && shift; shift; done
IFS= read -r given
[ "$given" = open ] || { echo 'Sorry, try again.' >&2; exit 1; }
exec "$@"
"""

DOES_NOT_ASK = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" = -p ] && shift; shift; done
exec "$@"
"""


def run(
    tmp_path: Path, sudo: str, command: str, stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    program = tmp_path / "sudo"
    program.write_text(sudo)
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", command], input=stdin, env=env, capture_output=True, timeout=20, check=False
    )


@pytest.mark.parametrize("sudo", [ASKS, DOES_NOT_ASK], ids=["asks", "does-not-ask"])
def test_the_command_reads_its_own_input_whether_or_not_sudo_asks(
    tmp_path: Path, sudo: str
) -> None:
    data = b"first line\n\0\xff binary, no newline at the end"
    command = sudo_command("cat", with_password=True, sentinel="5e7a")
    done = run(tmp_path, sudo, command, b"open\n5e7a\n" + data)
    assert done.returncode == 0
    assert done.stdout == data


def test_the_password_is_not_on_the_command_line() -> None:
    assert "open" not in sudo_command("true", with_password=True, sentinel="5e7a")


def test_a_wrong_password_fails_and_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    command = sudo_command(f"touch {marker}", with_password=True, sentinel="5e7a")
    done = run(tmp_path, ASKS, command, b"wrong\n5e7a\n")
    assert done.returncode != 0
    assert not marker.exists()


def test_without_a_password_sudo_is_told_not_to_ask() -> None:
    assert sudo_command("id -u", with_password=False, sentinel="x").startswith("sudo -n ")


def test_the_socket_is_tuned_before_the_first_byte() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        transport = tuned_transport(client)
        assert transport.sock is client
        assert not transport.is_active()  # nothing was sent yet
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_channel_through_a_jump_host_is_taken_as_it_is() -> None:
    class Channel:
        def settimeout(self, seconds: float) -> None:
            pass

    channel = Channel()
    assert tuned_transport(channel).sock is channel


def test_a_host_out_of_reach_is_not_greeted_as_connected(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("greeted")
    logger.addFilter(Greeting("[spark-2] ", "connection refused"))
    with caplog.at_level(logging.INFO, "greeted"):
        for host in ("spark-1", "spark-2"):
            logger.info(f"[{host}] {format_text('Connected', 'green')}")
    said = [record.getMessage() for record in caplog.records]
    assert "Connected" in said[0]
    assert "Connected" not in said[1] and "Not reached: connection refused" in said[1]
