"""Where the lab can't run it says so in one sentence, with its own exit code."""

import platform
from pathlib import Path

import pytest

from lab import machine
from lab.__main__ import main


@pytest.mark.parametrize("verb", ["up", "down"])
def test_another_system(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert main([verb]) == 3
    said = capsys.readouterr().err
    assert "needs Linux (this is Darwin)" in said
    assert said.count("\n") == 1


def test_not_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["up"]) == 3
    assert "run it again with sudo" in capsys.readouterr().err


def test_missing_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "check_kernel", lambda: None)
    monkeypatch.setattr(machine, "missing_packages", lambda: ["mmdebstrap", "skopeo"])
    assert main(["up"]) == 3
    said = capsys.readouterr().err
    assert "mmdebstrap skopeo" in said
    assert "python -m lab install" in said


@pytest.mark.parametrize("verb", [["exec", "spark-1", "--", "id"], ["shell", "x"], ["try"]])
def test_a_lab_that_is_down(
    verb: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARKFLEET_LAB_RUN", str(tmp_path / "none"))
    assert main(verb) == 1
    assert capsys.readouterr().err == "The lab is not up: `python -m lab up` starts it.\n"
