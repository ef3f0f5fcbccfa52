"""Memory arithmetic: what the services claim against what will be free when they start."""

from __future__ import annotations

from collections.abc import Iterator

from sparkfleet.checks.case import Case
from sparkfleet.checks.holders import by_hand, ours, utilization
from sparkfleet.facts.host import Memory, Unknown
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.memory import Verdict, judge
from sparkfleet.spec.plan import HostPlan

USUAL_CAP_GIB = 102.0
"""Free memory seen to be at most this even on a headless Spark (GLM-EXL3#47), GiB."""


def memory(case: Case) -> Iterator[Finding]:
    """All services of the host together, as the engine itself will count at start."""
    found = case.facts.memory
    if isinstance(found, Unknown):
        yield case.unknown("memory", "The memory", found)
        return
    verdict = weigh(case, found)
    least = least_free(case.plan)
    if not verdict.fits:
        why = (
            "The engine counts MemAvailable as free and refuses to start below its share: “Free "
            "memory on device … is less than desired GPU memory utilization”."
        )
        if verdict.claim_gib > USUAL_CAP_GIB:
            why += (
                f" Even on a headless Spark free memory can end near {USUAL_CAP_GIB:.0f} GiB, so "
                "0.85 is not always to be had."
            )
        what = f"Not enough free memory on {case.host}: {verdict.line}."
        yield case.fail("memory", what, why, verdict.advice)
    elif verdict.room_gib < least:
        yield case.fail(
            "memory",
            f"{case.host} will have {verdict.room_gib:.1f} GiB free at start; the recipe wants "
            f"{least:.0f} GiB.",
            "The recipe was published with that condition.",
            "Stop what else holds memory on the box.",
        )
    else:
        yield case.ok("memory", f"Memory: {verdict.line}.")


def least_free(plan: HostPlan) -> float:
    """GiB that the recipes of a host want free at start; 0 where none says."""
    return max(service.recipe.memory.free_gib or 0.0 for service in plan.services)


def weigh(case: Case, found: Memory) -> Verdict:
    """The claims of all services of the host against what will be free when they start."""
    claims = {service.name: service.utilization for service in case.plan.services}
    back = min(given_back(case, found.total_gib), found.total_gib - found.available_gib)
    return judge(claims, found.total_gib, found.available_gib, [back])


def given_back(case: Case, total_gib: float) -> float:
    """GiB that come free when our running services, and adopted ones, are stopped for new ones."""
    fractions = []
    for service in case.plan.services:
        own = ours(case.facts, service)
        if own is not None:
            # An image driven by its environment shows no fraction: the planned one stands for it.
            fractions.append(utilization(own) or service.utilization)
        if case.plan.spec.adopt:
            running = (box for box in by_hand(case.facts, service) if box.running)
            fractions += [utilization(box) or 0.0 for box in running]
    return total_gib * sum(fractions)
