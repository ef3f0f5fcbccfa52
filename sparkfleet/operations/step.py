"""One step on a host: a pyinfra operation around a function, with failures as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State

from sparkfleet.connector import SparkConnector
from sparkfleet.verdict import Failure, Verdict

Work = Callable[[SparkConnector], Failure | None]


def step(verdict: Verdict, name: str, work: Work) -> None:
    """Add an operation that runs `work` on the host unless something failed there before.

    A failure is noted in the verdict, and ignored as far as pyinfra is concerned: it would ask, on
    a terminal nobody may sit at, whether to go on, and would lose the report. The exit code of the
    run comes from the verdict.
    """

    def run(state: State, host: Host) -> bool:
        if not verdict.good(host.name):  # pyinfra calls it a success; nothing was done
            why = verdict.refused or "a step before it failed."
            host.log_styled(f"Left out: {why}", fg="yellow")
            return True
        assert isinstance(host.connector, SparkConnector)
        failure = work(host.connector)
        if failure:
            verdict.fail(host.name, failure)
            host.log_styled(failure.what, fg="red")
            return False
        verdict.changed.add(host.name)
        return True

    _call(run, name=name, _ignore_errors=True)


def at_the_end(name: str, work: Callable[[], None]) -> None:
    """Add an operation that does something on the controller after the steps before it, whatever
    became of them."""

    def run(state: State, host: Host) -> bool:
        work()
        return True

    _call(run, name=name)


def _yield(function: Callable[[State, Host], bool]) -> Iterator[FunctionCommand]:
    yield FunctionCommand(function, [], {})


# pyinfra's own types say less than it takes: `name` and the other global arguments are missing.
_call: Any = cast(Any, operation)()(_yield)


def say(host: Host) -> Callable[[str], Any]:
    """A function that prints a line under the host's name."""
    return lambda text: host.log(text)
