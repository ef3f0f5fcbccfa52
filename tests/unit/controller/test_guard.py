"""The command line is judged before the first connection: one sentence, exit code 1.

Each case runs the real `pyinfra` command in the project's directory, as an owner would.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import InventoryError

from sparkfleet.inventory import fleet

PROJECT = Path(__file__).resolve().parents[3]
PYINFRA = Path(sys.executable).with_name("pyinfra")

FLEET = "from sparkfleet.inventory import fleet\nsparks = fleet({})\n"


def pyinfra(*words: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PYINFRA), *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(*words: str, cwd: Path = PROJECT) -> str:
    done = pyinfra(*words, cwd=cwd)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "Connecting" not in said, "refused before any connection"
    return said


def test_no_such_inventory() -> None:
    assert "There is no inventory file inventory/nope.py" in refused(
        "inventory/nope.py", "deploy.py"
    )


def test_limit_that_matches_nothing() -> None:
    said = refused("-y", "inventory/lab.py", "deploy.py", "--limit", "spark-9*")
    assert "--limit spark-9* matches no host" in said
    assert "spark-1.local" in said


def test_limit_and_exclude_that_leave_nothing() -> None:
    words = ("--limit", "spark-1.local", "--exclude", "spark-1.local")
    assert "No host is left" in refused("-y", "inventory/lab.py", "deploy.py", *words)


@pytest.mark.parametrize("flag", ["--no-wait", "--serial"])
def test_options_that_undo_the_roll(flag: str) -> None:
    assert f"{flag} does not go with sparkfleet" in refused(
        "-y", flag, "inventory/lab.py", "deploy.py"
    )


def test_closed_input_without_yes() -> None:
    assert "Add -y" in refused("inventory/lab.py", "deploy.py")


def test_data_without_a_value() -> None:
    said = refused("-y", "inventory/lab.py", "deploy.py", "--data", "partial")
    assert "key=value" in said


def test_a_switch_that_is_no_truth_value() -> None:
    said = refused("-y", "inventory/lab.py", "deploy.py", "--data", "partial=perhaps")
    assert "partial" in said and "perhaps" in said


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(
            {
                "misspelt": ({"prest": "shared"}, "Did you mean preset"),
                "empty": ({"utilization": ""}, "utilization"),
                "quoted": ({"utilization": "0.85"}, '"0.85"'),
                "above-one": ({"utilization": 1.2}, "1.2"),
                "two-on-a-port": (
                    {"services": {"one": {"utilization": 0.4}, "two": {"utilization": 0.3}}},
                    "8000",
                ),
            },
            id="what a host says",
        ),
        pytest.param(
            {
                "above-cap": ({"utilization": 0.95}, "0.88"),
                "no-recipe": ({"recipe": "nope"}, "nope"),
                "no-preset": ({"preset": "nope"}, "nope"),
            },
            id="what a recipe allows",
        ),
    ],
)
def test_every_fault_of_every_host_is_told_at_once(
    tmp_path: Path, faults: dict[str, tuple[dict[str, Any], str]]
) -> None:
    """By host: what is written of it, and words that its sentence must hold."""
    inventory = tmp_path / "mine.py"
    rows = [(name, data) for name, (data, _) in faults.items()]
    inventory.write_text(FLEET.format(f"*{rows!r}"))
    said = refused("-y", str(inventory), "deploy.py")
    for name, (_, words) in faults.items():
        lines = [line for line in said.splitlines() if name in line]
        assert any(words in line for line in lines), (name, words, said)


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        pytest.param(("a", "a"), "stands twice", id="twice"),
        pytest.param(("a b",), "no host name", id="a name with a space"),
        pytest.param((("a", "preset"),), "is no host", id="data that is no dictionary"),
        pytest.param((), "no hosts", id="none"),
    ],
)
def test_a_fleet_that_is_none(hosts: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InventoryError, match=said):
        fleet(*hosts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(FLEET.format('"a", "a"'), "stands twice", id="a host twice"),
        pytest.param('boxes = ["a"]\n', "no hosts in the group `sparks`", id="no such group"),
        pytest.param("sparks = [\n", "cannot be read: SyntaxError", id="no Python"),
        pytest.param("", "mine.py names no host", id="nothing"),
        pytest.param(
            'sparks = ["10.0.0.5"]\n', 'sparks = fleet("10.0.0.5", …)', id="a list that is no fleet"
        ),
    ],
)
def test_an_inventory_that_is_none_ends_the_command(tmp_path: Path, text: str, said: str) -> None:
    inventory = tmp_path / "mine.py"
    inventory.write_text(text)
    assert said in refused("-y", str(inventory), "deploy.py")


def test_a_command_started_elsewhere(tmp_path: Path) -> None:
    """config.py is not read there, and pyinfra alone would exit with 0."""
    words = [str(PROJECT / "inventory/lab.py"), str(PROJECT / "deploy.py"), "--limit", "nobody"]
    said = refused("-y", *words, cwd=tmp_path)
    assert said.count("Refused: ") == 1 and f"cd {PROJECT}" in said


def test_how_hosts_are_reached_is_judged_too(tmp_path: Path) -> None:
    """pyinfra ignores a misspelt key and ends the run over a wrong type, naming no host."""
    inventory = tmp_path / "mine.py"
    inventory.write_text(FLEET.format('("a", {"ssh_usr": "me"}), ("b", {"ssh_port": "22"})'))
    said = refused("-y", str(inventory), "deploy.py")
    assert 'Host a: ssh_usr (value "me") is not a known key. Did you mean ssh_user?' in said
    assert 'Host b: ssh_port is "22", but must be a whole number' in said


LOCK = "plays/lock.py"


def test_the_options_of_a_play_are_its_own() -> None:
    said = refused("-y", "inventory/lab.py", "deploy.py", "--data", "update=x")
    assert "update" in said and "not a known key" in said
    said = refused("-y", "inventory/lab.py", LOCK, "--data", "check=perhaps")
    assert 'plays/lock.py, --data: check is "perhaps", but must be true or false' in said
    said = refused("-y", "inventory/lab.py", LOCK, "--data", "check=true", "--data", "update=x")
    assert "check" in said and "goes on its own" in said


@pytest.mark.parametrize(
    ("sparks", "doors", "words"),
    [
        ('("a", {"recipe": "qwen36-35b-heretic"})', '"door"', "which the gateway door can't reach"),
        ('("a", {"recipe": "qwen36-35b-heretic", "bind": "0.0.0.0"})', '("door", {"prot": 80})',
         "Gateway door: prot"),
        ('("a", {"recipe": "qwen36-35b-heretic"})', '("a", {"port": 8000})',
         "taken by the engine of service llm"),
        ('("a", {"recipe": "qwen36-35b-heretic", "gateway": {}})', '"door"', "Host a: gateway"),
    ],
    ids=["out of reach", "misspelt", "port twice", "of a Spark that is none"],
)  # fmt: skip
def test_a_gateway_that_cannot_be(tmp_path: Path, sparks: str, doors: str, words: str) -> None:
    inventory = tmp_path / "mine.py"
    inventory.write_text(
        "from sparkfleet.inventory import fleet, gateways\n"
        f"sparks = fleet({sparks})\ngateway = gateways({doors})\n"
    )
    assert words in refused("-y", str(inventory), "deploy.py")


def test_a_host_of_no_group_of_ours(tmp_path: Path) -> None:
    inventory = tmp_path / "mine.py"
    inventory.write_text(FLEET.format('"a"') + 'others = ["b"]\n')
    assert "in neither the group" in refused("-y", str(inventory), "deploy.py")
