"""A gateway's host: what is found there, and what is then still to be done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkfleet.checks.gateway import check_gateways
from sparkfleet.facts.host import HostFacts
from sparkfleet.facts.survey import AGENT_UNIT, Unreachable, survey_request
from sparkfleet.fleet import PROJECT, begin
from sparkfleet.render_gateway import gateway_files
from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.gateway import (
    CERTIFICATE,
    CONFIG,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    GatewayPlan,
    parse_gateway,
    plan_gateway,
)
from sparkfleet.spec.inventory import parse_fleet
from sparkfleet.spec.plan import HostPlan
from sparkfleet.spec.resolve import resolve
from sparkfleet.stages.gateway import gateway_lines, read_certificate
from sparkfleet.work_gateway import GatewayWork, WantedGateway, decide_gateway

PROGRAMS = {"job.py": "p1"}
UP = {"load": "loaded", "active": "active", "enabled": "enabled"}


@pytest.fixture(scope="module")
def hosts() -> dict[str, HostPlan]:
    spec = {"recipe": "qwen36-35b-heretic", "bind": "0.0.0.0"}
    fleet = parse_fleet({"spark-a": {**spec, "address": "10.0.0.1"}, "spark-b.local": spec})
    catalog = load_catalog(PROJECT, only={"qwen36-35b-heretic"})
    return {name: resolve(one, catalog, None) for name, one in fleet.items()}


def plan_of(hosts: dict[str, HostPlan], name: str = "door", **keys: Any) -> GatewayPlan:
    return plan_gateway(name, parse_gateway(name, {"gateway": keys}), hosts)


@pytest.fixture
def plan(hosts: dict[str, HostPlan]) -> GatewayPlan:
    return plan_of(hosts, stats="127.0.0.1:8404")


def facts(**changes: Any) -> HostFacts:
    answer: dict[str, Any] = {
        "time": 0.0,
        "received": 0.0,
        "python": "3.11.2",
        "privileged": True,
        "listeners": [],
        "units": {},
        "node_files": {},
        "gateway": {"haproxy": None, "apt": True, "files": {}, "resolved": {}},
    }
    return HostFacts.model_validate(answer | changes)


def there(**changes: Any) -> dict[str, Any]:
    return {"haproxy": "/usr/sbin/haproxy", "apt": True, "files": {}, "resolved": {}} | changes


def settled(wanted: WantedGateway, **changes: Any) -> HostFacts:
    return facts(
        **{
            "node_files": PROGRAMS,
            "units": {GATEWAY_UNIT: UP, GATEWAY_SOCKET: UP},
            "gateway": there(files=wanted.digests),
            **changes,
        }
    )


def test_a_bare_host_wants_everything_and_a_settled_one_nothing(plan: GatewayPlan) -> None:
    wanted = WantedGateway(gateway_files(plan), PROGRAMS)
    assert decide_gateway("door", wanted, facts()) == GatewayWork("door", True, True, True, True)
    work = decide_gateway("door", wanted, settled(wanted))
    assert work.nothing and work.sentences() == []


@pytest.mark.parametrize(
    ("changes", "work"),
    [
        ({"node_files": {}}, {"programs": True}),
        ({"gateway": there(haproxy=None)}, {"package": True, "files": True}),
        ({"gateway": there(files={CONFIG: "0" * 64})}, {"files": True}),
        ({"units": {}}, {"start": True}),
        ({"units": {GATEWAY_UNIT: UP, GATEWAY_SOCKET: UP | {"enabled": "disabled"}}},
         {"start": True}),
        ({"units": {GATEWAY_UNIT: UP, GATEWAY_SOCKET: UP | {"active": "failed"}}},
         {"start": True}),
        ({"gateway": {"unknown": "odd"}}, {"package": True, "files": True}),
    ],
)  # fmt: skip
def test_each_difference_is_one_thing_to_do(
    plan: GatewayPlan, changes: dict[str, Any], work: dict[str, bool]
) -> None:
    wanted = WantedGateway(gateway_files(plan), PROGRAMS)
    found = decide_gateway("door", wanted, settled(wanted, **changes))
    assert found == GatewayWork("door", **work) and found.sentences()


def test_a_certificate_that_changed_or_went_is_a_difference(plan: GatewayPlan) -> None:
    wanted = WantedGateway(gateway_files(plan), PROGRAMS, b"one")
    assert decide_gateway("door", wanted, settled(wanted)).nothing
    renewed = WantedGateway(gateway_files(plan), PROGRAMS, b"two")
    without = WantedGateway(gateway_files(plan), PROGRAMS)
    for other in (renewed, without):
        assert decide_gateway("door", other, settled(wanted)).files
    assert CERTIFICATE not in without.digests


def found(
    plan: GatewayPlan, hosts: dict[str, HostPlan], read: HostFacts | Unreachable
) -> dict[str, Finding]:
    rows = check_gateways({"door": plan}, {}, {"door": read}, asked=True)
    return {row.check: row for row in rows if row.level != "ok"}


@pytest.mark.parametrize(
    ("read", "check", "level", "words"),
    [
        (Unreachable("timed out"), "reachable", "fail", "door could not be reached"),
        (facts(privileged=False, sudo_error="sudo: a password is required"), "sudo", "fail",
         "wants a password"),
        (facts(python="3.8.1"), "python", "fail", "3.8.1"),
        (facts(), "haproxy", "mend", "installs it"),
        (facts(gateway=there(haproxy=None, apt=False)), "haproxy", "fail", "no apt-get"),
        (facts(gateway={"unknown": "odd"}), "gateway", "unknown", "could not be read"),
        (facts(gateway=there(resolved={"spark-b.local": None})), "gateway-names", "fail",
         "can't resolve spark-b.local"),
        (facts(gateway=there(), listeners=[
            {"addr": "0.0.0.0", "port": 8080, "pid": 7, "process": "nginx"}]),
         "gateway-port", "fail", "process nginx (pid 7)"),
        (facts(gateway=there(), listeners=[
            {"addr": "0.0.0.0", "port": 8404, "pid": 7, "process": "haproxy"}]),
         "gateway-port", "fail", "process haproxy"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_gateways_host(
    plan: GatewayPlan,
    hosts: dict[str, HostPlan],
    read: HostFacts | Unreachable,
    check: str,
    level: str,
    words: str,
) -> None:
    row = found(plan, hosts, read)[check]
    assert row.level == level and row.host == "door"
    assert words in f"{row.what} {row.why} {row.next}"


def test_our_own_gateway_may_hold_its_ports(plan: GatewayPlan, hosts: dict[str, HostPlan]) -> None:
    held = [{"addr": "127.0.0.1", "port": port, "pid": 7, "process": name}
            for port, name in ((8080, "haproxy"), (8404, "systemd"))]  # fmt: skip
    unit = {GATEWAY_SOCKET: {"active": "active"}}
    read = facts(gateway=there(), listeners=held, units=unit)
    assert found(plan, hosts, read) == {}


def test_the_agents_port_is_its_own_or_free(hosts: dict[str, HostPlan]) -> None:
    def rows(listeners: list[dict[str, Any]], asked: bool = True) -> list[Finding]:
        read = facts(listeners=listeners, units={AGENT_UNIT: {"active": "active", "pid": 9}})
        spark = {"spark-a": hosts["spark-a"]}
        return [
            row
            for row in check_gateways({}, spark, {"spark-a": read}, asked=asked)
            if row.level != "ok"
        ]

    own = {"addr": "0.0.0.0", "port": 18000, "pid": 9, "process": "python3"}
    assert rows([]) == rows([own]) == []
    (row,) = rows([{**own, "pid": 10, "process": "netdata"}])
    assert (row.check, row.level) == ("agent-port", "fail") and "netdata" in row.what
    assert rows([{**own, "pid": 10}], asked=False) == [], "nobody listens without a gateway"


def test_one_survey_reads_both_of_a_host_that_is_both(
    hosts: dict[str, HostPlan], plan: GatewayPlan
) -> None:
    both = survey_request(hosts["spark-a"], plan_of(hosts, "spark-a"))
    assert both["services"] == ["llm"] and {8000, 18000, 8080} <= set(both["ports"])
    assert both["gateway"]["names"] == ["spark-b.local"]
    alone = survey_request(None, plan)
    assert set(alone["ports"]) == {8080, 8404} and "services" not in alone
    assert "gateway" not in survey_request(hosts["spark-a"])


PEM = "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN PRIVATE KEY-----\ny\n"


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (None, 0o600, "no such file"),
        ("-----BEGIN PRIVATE KEY-----\n", 0o600, "no certificate"),
        ("-----BEGIN CERTIFICATE-----\n", 0o600, "no private key"),
        (PEM, 0o644, "others may read it.*chmod 600"),
    ],
)
def test_a_certificate_that_cannot_be_used(
    tmp_path: Path, text: str | None, mode: int, words: str
) -> None:
    path = tmp_path / "door.pem"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(SpecError, match=words):
        read_certificate("door", str(path))


def test_the_key_is_not_shown(tmp_path: Path, plan: GatewayPlan) -> None:
    path = tmp_path / "door.pem"
    path.write_text(PEM)
    path.chmod(0o600)
    wanted = WantedGateway(gateway_files(plan), PROGRAMS, read_certificate("door", str(path)))
    assert "PRIVATE" not in repr(wanted)


def test_the_report_says_where_it_is(hosts: dict[str, HostPlan]) -> None:
    open_one = plan_of(hosts, bind="0.0.0.0", certificate="c.pem", stats="10.0.0.9:8404")
    lines = list(gateway_lines(open_one, "up"))
    assert lines[0] == "Gateway door: up; llm at https://door:8080/v1, 2 nodes."
    assert "http://10.0.0.9:8404/metrics" in lines[1]


def test_a_gateway_leads_to_every_spark_whatever_the_run_is_limited_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKFLEET_STATE", str(tmp_path))
    spec = {"recipe": "qwen36-35b-heretic", "bind": "0.0.0.0"}
    sparks = {"spark-a": spec, "spark-b": spec}
    doors = {"door": parse_gateway("door", {}), "other": parse_gateway("other", {})}

    one = begin("test", sparks, doors, chosen=["spark-b", "door"])
    assert one.hosts == ("spark-b", "door")
    assert [server.name for server in one.gateways["door"].routes[0].servers] == list(sparks)
    assert one.answers["spark-b"].gateways == 2, "both will ask"

    only = begin("test", sparks, doors, chosen=["door"])
    assert only.hosts == ("door",) and only.policy.batch == 1 and only.nothing

    without = begin("test", sparks, doors, chosen=["spark-a"])
    assert without.hosts == ("spark-a",) and without.answers

    none = begin("test", sparks)
    assert none.hosts == tuple(sparks) and not none.answers and not none.gateways
