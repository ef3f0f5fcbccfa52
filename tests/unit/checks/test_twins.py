"""What two hosts must not share."""

from __future__ import annotations

import pytest

from sparkfleet.checks import check_fleet
from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import Unreachable

from .samples import BASE, plan_of

NAMES = ("spark-1", "spark-2", "spark-3")


def fleet(**changes: dict[str, object]) -> list[tuple[str, str, str]]:
    """Findings other than ok of three healthy hosts with their own identities, then changed."""
    facts: dict[str, HostFacts | Unreachable] = {}
    for name in NAMES:
        own = {
            "machine_id": f"id-of-{name}",
            "boot_id": f"boot-of-{name}",
            "host_keys": {"ssh-ed25519": f"SHA256:{name}", "ssh-rsa": f"SHA256:rsa-{name}"},
            "received": BASE["time"],
        }
        facts[name] = HostFacts.model_validate({**BASE, **own, **changes.get(name, {})})
    plans = {name: plan_of({}, name) for name in NAMES}
    findings = check_fleet(plans, facts)
    return [(one.level, one.check, one.what) for one in findings if one.level != "ok"]


def test_each_its_own() -> None:
    assert fleet() == []


def test_cloned_disk() -> None:
    clone = {"machine_id": "same", "host_keys": {"ssh-ed25519": "SHA256:same", "r": "SHA256:sam2"}}
    assert fleet(**{"spark-1": clone, "spark-3": clone}) == [
        ("warn", "machine-id", "spark-1 and spark-3 have the same machine id."),
        ("warn", "ssh-host-key", "spark-1 and spark-3 have the same SSH host key."),
    ]


def test_one_box_under_two_names() -> None:
    box = {"machine_id": "same", "boot_id": "same", "host_keys": {"ssh-ed25519": "SHA256:same"}}
    assert fleet(**{"spark-2": box, "spark-3": box}) == [
        (
            "fail",
            "same-box",
            "spark-2 and spark-3 are one and the same machine: same boot, same machine id.",
        ),
    ]


@pytest.mark.parametrize("nothing", [None, {"unknown": "PermissionError"}, ""])
def test_what_is_not_known_is_not_shared(nothing: object) -> None:
    unread = {"machine_id": nothing, "boot_id": nothing, "host_keys": {"unknown": "x"}}
    assert fleet(**{"spark-1": unread, "spark-2": unread}) == []


def test_a_host_without_answer_is_reported_with_the_others() -> None:
    plans = {name: plan_of({}, name) for name in NAMES}
    facts: dict[str, HostFacts | Unreachable] = {
        "spark-2": Unreachable("Could not connect (timed out)"),
        "spark-3": HostFacts.model_validate({**BASE, "received": BASE["time"], "arch": "x86_64"}),
    }
    wrong = [one for one in check_fleet(plans, facts) if one.level == "fail"]
    assert [(one.host, one.check) for one in wrong] == [
        ("spark-1", "reachable"),
        ("spark-2", "reachable"),
        ("spark-3", "arch"),
    ]
