"""The survey's command, run for real by this machine's shell."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import StringCommand
from pyinfra.connectors.util import make_unix_command

from sparkfleet.facts.command import survey_command
from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Survey, Unreachable, parse_survey

SUDO_REFUSES = 'echo "sudo: a password is required" >&2; exit 1'
SUDO_ALLOWS = 'while [ "${1#-}" != "$1" ]; do shift; done; echo "$@" >>"$SUDO_LOG"; exec "$@"'


def place(directory: Path, name: str, script: str) -> None:
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH of its own: python3, timeout, and an `id` that says we are not root."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, target in {"python3": sys.executable, "timeout": "timeout", "true": "true"}.items():
        (directory / name).symlink_to(str(shutil.which(target)))
    (directory / "sh").symlink_to("/bin/sh")
    place(directory, "id", "echo 1000")
    place(directory, "sudo", SUDO_REFUSES)
    return directory


def ask(programs: Path, request: dict[str, Any], tmp_path: Path) -> HostFacts | Unreachable:
    request = {"root": str(tmp_path / "root"), "home": str(tmp_path), **request}
    environment = {"PATH": str(programs), "SUDO_LOG": str(tmp_path / "sudo.log")}
    done = subprocess.run(
        ["/bin/sh", "-c", survey_command(request)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""
    return parse_survey(done.stdout.splitlines())


def test_fits_every_shell() -> None:
    command = survey_command({"root": "/var/lib/sparkfleet", "services": ["it's"] * 200})
    assert "\n" not in command and len(command) < 128 * 1024
    outer, flag, script = shlex.split(command)
    assert (outer, flag) == ("sh", "-c") and "'" not in script


def test_without_root_what_may_be_seen_is_read(programs: Path, tmp_path: Path) -> None:
    facts = ask(programs, {}, tmp_path)
    assert isinstance(facts, HostFacts)
    assert facts.sudo_error == "sudo: a password is required"
    assert facts.arch == os.uname().machine
    assert facts.python == "{}.{}.{}".format(*sys.version_info)


def test_root_is_had_by_sudo_and_its_log_stays_short(programs: Path, tmp_path: Path) -> None:
    place(programs, "sudo", SUDO_ALLOWS)
    facts = ask(programs, {}, tmp_path)
    assert isinstance(facts, HostFacts) and facts.sudo_error is None
    (survey,) = (tmp_path / "sudo.log").read_text().splitlines()
    assert survey.startswith("timeout") and len(survey) < 400


def test_without_sudo_what_may_be_seen_is_read(programs: Path, tmp_path: Path) -> None:
    (programs / "sudo").unlink()
    facts = ask(programs, {}, tmp_path)
    assert isinstance(facts, HostFacts)
    assert facts.sudo_error and "not found" in facts.sudo_error


def test_a_survey_out_of_time_is_not_begun_again(programs: Path, tmp_path: Path) -> None:
    place(programs, "sudo", 'echo asked >>"$SUDO_LOG"; exit 124')
    assert ask(programs, {}, tmp_path) == Unreachable("the survey printed nothing")
    assert (tmp_path / "sudo.log").read_text() == "asked\n"


def test_no_python(programs: Path, tmp_path: Path) -> None:
    (programs / "python3").unlink()
    assert ask(programs, {}, tmp_path) == Unreachable("python3: not found")


def test_python_that_fails(programs: Path, tmp_path: Path) -> None:
    (programs / "python3").unlink()
    place(programs, "python3", "echo Speicherzugriffsfehler; exit 139")
    assert ask(programs, {}, tmp_path) == Unreachable("Speicherzugriffsfehler")


def test_survives_pyinfras_wrapping(tmp_path: Path) -> None:
    request = json.dumps({"root": str(tmp_path), "ports": [1]})
    wrapped = make_unix_command(StringCommand(Survey().command(request)), _shell_executable="sh")
    done = subprocess.run(
        ["/bin/bash", "-c", wrapped.get_raw_value()], capture_output=True, text=True, check=True
    )
    facts = Survey().process(done.stdout.splitlines())
    assert isinstance(facts, HostFacts) and facts.listeners == ()


def test_answer_after_noise_and_of_another_version() -> None:
    assert parse_survey([]) == Unreachable("the survey printed nothing")
    assert parse_survey(["Welcome", "bash: warning"]) == Unreachable("Welcome\nbash: warning")
    old = '{"schema":99,"time":1}'
    assert parse_survey([old]) == Unreachable(old)
    cut = parse_survey(['{"schema":1,"time":'])
    assert isinstance(cut, Unreachable) and cut.raw
    assert isinstance(parse_survey(['{"schema":1}']), Unreachable)
