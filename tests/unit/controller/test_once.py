"""What is done once per run is done once, however it ends."""

import subprocess
import sys

import pytest

from sparkfleet.once import Once


def test_an_error_is_every_hosts_error() -> None:
    once, calls = Once(), []

    def step() -> None:
        calls.append(1)
        raise ValueError

    for _ in range(3):
        with pytest.raises(ValueError):
            once.do("check", step)
    assert calls == [1]


def test_the_end_of_a_run_comes_once_and_without_a_traceback() -> None:
    """As pyinfra loads the deploy file: a greenlet a host, and the first ends the process."""
    script = """
from gevent import monkey
monkey.patch_all()
import gevent, sys
from sparkfleet.once import Once

def step():
    gevent.sleep(0.05)
    print("begun")
    sys.exit(3)

once = Once()
hosts = [gevent.spawn(once.do, "check", step) for _ in range(5)]
for done in gevent.iwait(hosts):
    done.get()
print("went on")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "begun\n", "")


def test_an_answer_is_every_hosts_answer() -> None:
    once = Once()
    assert [once.do("look", lambda n=n: n) for n in range(3)] == [0, 0, 0]  # type: ignore[misc]
