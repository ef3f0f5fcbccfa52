"""Do a thing once per run: pyinfra runs the deploy file for every host at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gevent import GreenletExit
from gevent.lock import RLock

T = TypeVar("T")


class Once:
    """Remembers what each named step returned or raised; later callers wait for it and get that.

    A step that ends the run does so once: it is on its way out with SystemExit, and callers after
    it end quietly. A second SystemExit would come when the interpreter is going down already,
    which then prints a traceback.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._results: dict[str, tuple[Any, Exception | GreenletExit | None]] = {}

    def do(self, name: str, step: Callable[[], T]) -> T:
        """Run `step` the first time `name` is asked for; the same answer (or error) after that."""
        with self._lock:
            if name not in self._results:
                try:
                    self._results[name] = (step(), None)
                except Exception as error:
                    self._results[name] = (None, error)
                except SystemExit:
                    self._results[name] = (None, GreenletExit())
                    raise
            value, failure = self._results[name]
        if failure is not None:
            raise failure
        result: T = value
        return result
