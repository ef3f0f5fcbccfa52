"""The order of a roll, and when it may not go on."""

from __future__ import annotations

from typing import Any

import pytest

from sparkfleet.facts.host import HostFacts
from sparkfleet.rolling import Policy, batches, out_of_service, too_many_out
from sparkfleet.work import HostWork, Switch

ONE, TWO = Policy(), Policy(batch=2)


def work_of(host: str, *kinds: str, first: bool = False) -> HostWork:
    switches = tuple(Switch("llm", "f" * 12, kind, "why", first) for kind in kinds)  # type: ignore[arg-type]
    return HostWork(host, switches=switches)


def test_serving_hosts_are_switched_in_inventory_order_batch_by_batch() -> None:
    work = [work_of(name, "release") for name in ("c", "a", "b")]
    assert batches(work, ONE) == [["c"], ["a"], ["b"]]
    assert batches(work, TWO) == [["c", "a"], ["b"]]


def test_hosts_with_nothing_to_do_are_in_no_batch() -> None:
    assert batches([work_of("a"), work_of("b", "start")], ONE) == [["b"]]
    assert batches([work_of("a")], ONE) == []


def test_a_first_deploy_tries_one_host_and_then_all_others_together() -> None:
    work = [work_of(name, "release", first=True) for name in ("a", "b", "c")]
    assert batches(work, ONE) == [["a"], ["b", "c"]]


def test_a_new_host_joins_after_those_that_serve() -> None:
    work = [work_of("new", "release", first=True), work_of("old", "release")]
    assert batches(work, ONE) == [["old"], ["new"]]


def test_the_canary_goes_first_and_alone() -> None:
    work = [work_of(name, "release") for name in ("a", "b", "c", "d")]
    policy = Policy(batch=2, canary="c")
    assert batches(work, policy) == [["c"], ["a", "b"], ["d"]]


def test_a_canary_with_nothing_to_do_holds_up_nobody() -> None:
    work = [work_of("a", "release"), work_of("c"), work_of("d", "release")]
    assert batches(work, Policy(canary="c")) == [["a"], ["d"]]


def test_a_canary_of_a_first_deploy_is_the_first_host_alone() -> None:
    work = [work_of(name, "release", first=True) for name in ("a", "b", "c")]
    assert batches(work, Policy(canary="b")) == [["b"], ["a", "c"]]


def whether(group: list[str], out: set[str], policy: Policy, kind: str = "release") -> str:
    work = {host: work_of(host, kind) for host in group}
    return " ".join(too_many_out(group, work, {"llm": out}, policy) or ())


BOUND = Policy(max_unavailable=1)


def test_a_batch_is_not_begun_beside_a_host_that_is_out_already() -> None:
    said = whether(["b"], {"a"}, BOUND)
    assert "2 hosts would be out of service llm at once (a already, b by this batch)" in said
    assert "max_unavailable is 1" in said and "--limit a" in said


def test_a_batch_that_takes_nobody_out_is_begun_all_the_same() -> None:
    assert whether(["a"], {"a", "z"}, BOUND) == "", "it can only bring one back"
    assert whether(["b"], {"a"}, BOUND, "prove") == "", "nothing is stopped for a proof"


@pytest.mark.parametrize(
    ("out", "policy"),
    [
        pytest.param(set(), BOUND, id="nobody is out"),
        pytest.param({"a"}, Policy(max_unavailable=2), id="within the bound"),
        pytest.param({"a", "c", "d"}, Policy(), id="no bound"),
    ],
)
def test_a_batch_within_the_bound_is_begun(out: set[str], policy: Policy) -> None:
    assert whether(["b"], out, policy) == ""


def test_hosts_out_of_another_service_do_not_count() -> None:
    work = {"b": work_of("b", "release")}
    assert too_many_out(["b"], work, {"other": {"a"}}, BOUND) is None


def facts(**service: Any) -> HostFacts:
    container = {"id": "c1", "name": "x", "state": "running"}
    answer: dict[str, Any] = {"time": 0.0, "received": 0.0, "python": "3.12", "privileged": True}
    answer |= {"containers": [container], "services": {"llm": service}}
    return HostFacts.model_validate(answer)


PROVEN = {"phase": "proven", "container": "c1"}


@pytest.mark.parametrize(
    ("found", "out"),
    [
        pytest.param({"current": "r", "state": PROVEN}, False, id="serves"),
        pytest.param({"current": "r", "state": {**PROVEN, "phase": "down"}}, True, id="down"),
        pytest.param({"current": "r", "state": {**PROVEN, "container": "c2"}}, True, id="gone"),
        pytest.param({"current": "r", "state": PROVEN, "drain": {"who": "a"}}, True, id="drained"),
        pytest.param({}, False, id="never ran here"),
    ],
)
def test_who_is_out_of_service(found: dict[str, Any], out: bool) -> None:
    assert out_of_service("llm", facts(**found)) is out


def test_a_host_that_can_not_be_read_may_be_out() -> None:
    assert out_of_service("llm", None)
    unknown = {"time": 0.0, "received": 0.0, "python": "3.12", "privileged": False}
    assert out_of_service("llm", HostFacts.model_validate(unknown))
