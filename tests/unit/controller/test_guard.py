"""The command line is judged before the first connection: one sentence, exit code 1.

Each case runs the real `pyinfra` command in the project's directory, as an owner would.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from sparkfleet.guard import merge

PROJECT = Path(__file__).resolve().parents[3]
PYINFRA = Path(sys.executable).with_name("pyinfra")

FLEET = "from sparkfleet.inventory import fleet\nsparks = fleet({})\n"


def pyinfra(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PYINFRA), *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(*words: str) -> str:
    done = pyinfra(*words)
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
    ("hosts", "said"),
    [
        pytest.param('"a", "a"', "stands twice", id="duplicate host"),
        pytest.param('("a", {"prest": "shared"})', "Did you mean preset", id="misspelt key"),
        pytest.param('("a", {"utilization": ""})', "utilization", id="empty utilization"),
        pytest.param('("a", {"utilization": "0.85"})', '"0.85"', id="utilization in quotes"),
        pytest.param('("a", {"utilization": 1.2})', "1.2", id="utilization above 1"),
        pytest.param('("a", {"utilization": 0.95})', "0.88", id="above the recipe's cap"),
        pytest.param('("a", {"recipe": "nope"})', "nope", id="unknown recipe"),
        pytest.param('("a", {"preset": "nope"})', "nope", id="unknown preset"),
        pytest.param('"a b"', "no host name", id="name with a space"),
        pytest.param("", "no hosts", id="no host at all"),
    ],
)
def test_inventory_faults(tmp_path: Path, hosts: str, said: str) -> None:
    inventory = tmp_path / "mine.py"
    inventory.write_text(FLEET.format(hosts))
    answer = refused("-y", str(inventory), "deploy.py")
    assert said in answer


def test_missing_group(tmp_path: Path) -> None:
    inventory = tmp_path / "mine.py"
    inventory.write_text('boxes = ["a"]\n')
    assert "no hosts in the group `sparks`" in refused("-y", str(inventory), "deploy.py")


def test_an_inventory_that_is_no_python(tmp_path: Path) -> None:
    inventory = tmp_path / "mine.py"
    inventory.write_text("sparks = [\n")
    assert "cannot be read: SyntaxError" in refused("-y", str(inventory), "deploy.py")


def test_a_size_on_the_host_takes_the_place_of_the_group_s_preset() -> None:
    group, host = {"preset": "alone", "port": 8000}, {"utilization": 0.7}
    assert merge(group, host) == {"port": 8000, "utilization": 0.7}
    assert merge(group, {"port": 9000}) == {"preset": "alone", "port": 9000}
