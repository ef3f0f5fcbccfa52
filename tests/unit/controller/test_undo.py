"""Each attempt to undo recipe A's scars, in an inventory and through the command itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.spec.undone import UNDONE, Undone

PROJECT = Path(__file__).resolve().parents[3]
PYINFRA = Path(sys.executable).with_name("pyinfra")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run says to a fleet with an attempt on each host."""
    path = tmp_path_factory.mktemp("undo") / "fleet.py"
    rows = [(f"spark-{i}", {"recipe": "qwen36-35b-heretic", **row.keys}) for i, row in
            enumerate(UNDONE)]  # fmt: skip
    path.write_text(f"from sparkfleet.inventory import fleet\nsparks = fleet(*{rows!r})\n")
    done = subprocess.run(
        [PYINFRA, "-y", path, "deploy.py"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    everything = done.stdout + done.stderr
    assert done.returncode == 1, everything
    assert "Traceback" not in everything
    assert "Connecting" not in everything, "refused before any connection"
    return everything


@pytest.mark.parametrize(
    ("index", "row"), [*enumerate(UNDONE)], ids=[f"{row.number or 0}-{row.rule}" for row in UNDONE]
)
def test_is_refused_with_its_reason(said: str, index: int, row: Undone) -> None:
    mine = [line for line in said.splitlines() if f"spark-{index}, service llm:" in line]
    refusal = next(line for line in mine if f"Rule {row.rule}:" in line)
    assert row.reason in refusal
    assert f'overrides: {{"{row.rule}": "…"}}' in refusal, "and says how to break it all the same"
