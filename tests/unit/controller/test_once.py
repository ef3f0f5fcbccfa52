"""What is done once per run is done once, however it ends."""

import pytest

from sparkfleet.once import Once


@pytest.mark.parametrize("end", [ValueError, SystemExit])
def test_an_end_is_every_hosts_end(end: type[BaseException]) -> None:
    """`stop` ends the run; the next host must not begin it anew."""
    once, calls = Once(), []

    def step() -> None:
        calls.append(1)
        raise end(1)

    for _ in range(3):
        with pytest.raises(end):
            once.do("check", step)
    assert calls == [1]


def test_an_answer_is_every_hosts_answer() -> None:
    once = Once()
    assert [once.do("look", lambda n=n: n) for n in range(3)] == [0, 0, 0]  # type: ignore[misc]
