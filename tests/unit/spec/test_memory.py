"""Memory arithmetic: floors, caps, sums, and a suggestion that really fits."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.memory import floor_hundredth, judge, of_reserve
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.resolve import resolve

A = "qwen36-35b-heretic"
SIZE = st.one_of(
    st.fixed_dictionaries({"preset": st.sampled_from(["alone", "shared"])}),
    st.fixed_dictionaries(
        {"utilization": st.floats(0.001, 0.999, allow_nan=False, exclude_min=True)}
    ),
    st.fixed_dictionaries({"reserve_gib": st.floats(0.5, 200, allow_nan=False)}),
)


@pytest.mark.parametrize(
    ("value", "floored"), [(0.7, 0.7), (0.29, 0.29), (0.855, 0.85), (0.8799999, 0.87), (1.0, 1.0)]
)
def test_floor_keeps_hundredths(value: float, floored: float) -> None:
    assert floor_hundredth(value) == floored


@given(st.floats(0, 1))
def test_floor_never_rounds_up(value: float) -> None:
    floored = floor_hundredth(value)
    assert floored <= value + 1e-8
    assert value - floored < 0.01 + 1e-8
    assert floor_hundredth(floored) == floored


@given(st.floats(0, 200), st.floats(1, 200))
def test_reserve_is_left(reserve: float, total: float) -> None:
    assert total * of_reserve(reserve, total) <= total - reserve + 1e-5


def test_verdict_suggests_what_fits() -> None:
    verdict = judge({"llm": 0.85}, 121.7, 96.0)
    assert not verdict.fits
    assert verdict.line == "121.7 GiB × 0.85 = 103.4; available 96.0"
    assert verdict.suggestion == {"llm": 0.78}
    assert "llm: utilization 0.78" in verdict.advice
    assert judge({"llm": 0.85}, 121.7, 30.0, [80.0]).fits
    assert judge({"llm": 0.85}, 121.7, 2.0).suggestion == {}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.05, 0.9), min_size=1),
    st.floats(20, 130),
    st.floats(0, 130),
    st.lists(st.floats(0, 50), max_size=2),
)
def test_a_suggestion_fits(
    claims: dict[str, float], total: float, available: float, back: list[float]
) -> None:
    verdict = judge(claims, total, available, back)
    if verdict.fits:
        assert verdict.advice == ""
    else:
        assert verdict.advice
        if verdict.suggestion:
            assert judge(verdict.suggestion, total, available + 1e-6, back).fits
            assert all(verdict.suggestion[name] <= claims[name] for name in claims)


@given(size=SIZE)
def test_any_size_is_within_the_caps_or_refused(size: dict[str, object], catalog: Catalog) -> None:
    host = parse_host("h1", {"recipe": A, **size})
    cap = catalog.recipes[A].max_utilization.value
    try:
        plan = resolve(host, catalog, None).services[0]
    except SpecError as error:
        assert error.host == "h1"
        wanted = size.get("utilization", 1 - float(size.get("reserve_gib", 0)) / 121.7)  # type: ignore[arg-type]
        assert floor_hundredth(float(wanted)) > cap or floor_hundredth(float(wanted)) <= 0  # type: ignore[arg-type]
    else:
        assert 0 < plan.utilization <= cap
        assert plan.utilization == floor_hundredth(plan.utilization)
        assert plan.flags["gpu-memory-utilization"] == plan.utilization


@given(values=st.lists(st.floats(0.01, 0.88), min_size=2, max_size=4))
def test_sum_of_a_box(values: list[float], catalog: Catalog) -> None:
    services = {
        f"s{i}": {"recipe": A, "port": 8000 + i, "utilization": value}
        for i, value in enumerate(values)
    }
    total = round(sum(floor_hundredth(value) for value in values), 4)
    host = parse_host("h1", {"services": services})
    if total > 0.88:
        with pytest.raises(SpecError, match=rf"add up to {total:.2f}"):
            resolve(host, catalog, None)
    else:
        plans = resolve(host, catalog, None).services
        assert len({plan.container for plan in plans}) == len(plans)


ANY_SERVICE = st.fixed_dictionaries(
    {"recipe": st.sampled_from(["qwen36-35b-heretic", "gemma4-31b-deckard", "ornith-35b"])},
    optional={
        "preset": st.sampled_from(["alone", "shared", "long", "short", "no-such"]),
        "utilization": st.floats(-0.1, 1.1),
        "reserve_gib": st.floats(-1, 140),
    },
)


@given(services=st.lists(ANY_SERVICE, min_size=1, max_size=4))
def test_any_box_that_resolves_keeps_every_rule(
    services: list[dict[str, object]], catalog: Catalog
) -> None:
    """Cap of each recipe, cap of the hardware, sum, floor, and what was to be left is left."""
    rows = {f"s{i}": {**keys, "port": 8000 + i} for i, keys in enumerate(services)}
    try:
        plan = resolve(parse_host("h1", {"services": rows}), catalog, None)
    except SpecError as error:
        assert str(error)
        return
    cap = plan.hardware.max_utilization.value
    total = plan.hardware.memory_gib
    assert sum(one.utilization for one in plan.services) <= cap + 1e-9
    for one in plan.services:
        assert 0 < one.utilization <= min(cap, one.recipe.max_utilization.value)
        assert one.utilization == floor_hundredth(one.utilization)
        assert one.flags["gpu-memory-utilization"] == one.utilization
        assert one.memory.claim_gib == pytest.approx(total * one.utilization)
        asked = one.spec
        if asked.reserve_gib is not None:
            assert one.memory.claim_gib <= total - asked.reserve_gib + 1e-5
        elif asked.utilization is not None:
            assert one.utilization <= asked.utilization + 1e-8
        else:
            assert one.utilization == one.recipe.preset(asked.preset or "alone").utilization


def test_reserve_that_leaves_nothing(refused: Callable[..., SpecError]) -> None:
    assert re.search(r"reserve_gib 125 leaves nothing of 121.7 GiB", str(refused(reserve_gib=125)))


def test_services_share_models_and_differ_in_place(catalog: Catalog) -> None:
    sizes = {"a": {"recipe": A, "utilization": 0.4}, "b": {"recipe": A, "port": 8001,
             "utilization": 0.3}}  # fmt: skip
    a, b = resolve(parse_host("h1", {"services": sizes}), catalog, None).services
    assert a.models == b.models
    assert (a.dir, b.dir) == ("/var/lib/sparkfleet/services/a", "/var/lib/sparkfleet/services/b")
    assert (a.container, b.container) == ("qwen36-35b", "qwen36-35b-b")
    assert isinstance(a, ServicePlan) and a.unit == "sparkfleet-a.service"
