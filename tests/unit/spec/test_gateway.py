"""What an owner may write of a gateway, and what follows for its routes."""

from __future__ import annotations

from typing import Any

import pytest

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.gateway import Endpoint, GatewayPlan, parse_gateway, plan_gateway
from sparkfleet.spec.inventory import parse_fleet
from sparkfleet.spec.resolve import resolve

RECIPE = "qwen36-35b-heretic"
OTHER = "qwen36-27b"


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"bindd": "0.0.0.0"}, "bindd", ["Did you mean bind?"]),
        ({"bind": "door.local"}, "bind", ['"door.local"', "IP address of the gateway's host"]),
        ({"port": 0}, "port", ["0", "1 or more"]),
        ({"port": "8080"}, "port", ['"8080"', "without quotes"]),
        ({"ports": {"A b": 1}}, "ports.A b", ["lower-case"]),
        ({"ports": {"llm": 70000}}, "ports.llm", ["70000", "65535 or less"]),
        ({"queue_timeout": 0}, "queue_timeout", ["1 or more"]),
        ({"answer_timeout": 1.5}, "answer_timeout", ["whole number"]),
        ({"agent_interval": 0.01}, "agent_interval", ["0.01", "0.2 or more"]),
        ({"stats": "8404"}, "stats", ['"8404"', "127.0.0.1:8404"]),
        ({"stats": "0.0.0.0:99999"}, "stats", ["99999"]),
        ({"stats": "localhost:8404"}, "stats", ["localhost", "IP address and a port"]),
        ({"certificate": 1}, "certificate", ["1", "text"]),
    ],
)
def test_refused(keys: dict[str, Any], key: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_gateway("door", {"gateway": keys})
    assert str(caught.value).startswith("Gateway door: ")
    assert (caught.value.host, caught.value.key) == ("door", key)
    for word in words:
        assert word in str(caught.value)


def test_a_key_beside_the_gateways_own_is_refused() -> None:
    with pytest.raises(SpecError, match=r"bind .* is not a known key.*stands under `gateway`"):
        parse_gateway("door", {"bind": "0.0.0.0"}, {"bind": "0.0.0.0"})
    with pytest.raises(SpecError, match=r'gateway is "0\.0\.0\.0", but must be a mapping'):
        parse_gateway("door", {"gateway": "0.0.0.0"})
    assert parse_gateway("door", {"bind": "x", "ssh_user": "a"}, {"ssh_user": "a"}).port == 8080


def plan(
    catalog: Catalog,
    hosts: dict[str, dict[str, Any]],
    gateway: dict[str, Any] | None = None,
    name: str = "door",
) -> GatewayPlan:
    specs = parse_fleet({host: {"recipe": RECIPE, **keys} for host, keys in hosts.items()})
    plans = {host: resolve(spec, catalog, None) for host, spec in specs.items()}
    return plan_gateway(name, parse_gateway(name, {"gateway": gateway or {}}), plans)


OPEN = {"bind": "0.0.0.0"}


def test_services_of_one_name_are_one_backend(catalog: Catalog) -> None:
    made = plan(
        catalog,
        {
            "spark-b": {**OPEN, "ssh_hostname": "10.0.0.2"},
            "spark-a": {**OPEN, "address": "192.168.1.3", "ssh_hostname": "10.0.0.3"},
            "spark-c.local": {"bind": "10.0.0.4", "port": 9000, "agent_port": 9999},
            "spark-d.local": OPEN,
        },
    )
    (route,) = made.routes
    assert (route.service, route.port) == ("llm", 8080)
    assert [(one.name, one.address, one.port, one.agent_port) for one in route.servers] == [
        ("spark-b", "10.0.0.2", 8000, 18000),
        ("spark-a", "192.168.1.3", 8000, 18000),
        ("spark-c.local", "10.0.0.4", 9000, 9999),
        ("spark-d.local", "spark-d.local", 8000, 18000),
    ]
    assert {one.maxconn for one in route.servers} == {64}


def test_a_spark_that_is_its_own_gateway_is_reached_within_itself(catalog: Catalog) -> None:
    made = plan(catalog, {"one": {"bind": "127.0.0.1"}}, name="one")
    assert made.routes[0].servers[0].address == "127.0.0.1"
    made = plan(catalog, {"one": {"bind": "::", "agent_bind": "10.0.0.1"}}, name="one")
    assert made.routes[0].servers[0].address == "::1"
    assert made.routes[0].servers[0].agent_address == "10.0.0.1"


def two(port: int = 8001, **second: Any) -> dict[str, Any]:
    return {
        "services": {
            "chat": {**OPEN, "recipe": RECIPE, "utilization": 0.4},
            "small": {**OPEN, "recipe": OTHER, "utilization": 0.3, "port": port, **second},
        },
    }


def test_several_services_have_a_port_each(catalog: Catalog) -> None:
    spec = parse_fleet({"a": two()})["a"]
    made = plan_gateway(
        "door",
        parse_gateway("door", {"gateway": {"ports": {"chat": 80, "small": 81}}}),
        {"a": resolve(spec, catalog, None)},
    )
    assert {route.service: route.port for route in made.routes} == {"chat": 80, "small": 81}
    assert list(made.endpoints) == [
        ("service chat", Endpoint("127.0.0.1", 80)),
        ("service small", Endpoint("127.0.0.1", 81)),
    ]


@pytest.mark.parametrize(
    ("hosts", "gateway", "words"),
    [
        ({"a": {}}, {}, ["Host a, service llm", "127.0.0.1", "can't reach", "0.0.0.0"]),
        ({"a": {**OPEN, "agent_bind": "127.0.0.1"}}, {}, ["agent_bind is 127.0.0.1"]),
        ({"a": OPEN}, {"ports": {"lm": 80}}, ["ports names lm", "Did you mean llm?"]),
        ({"a": two()}, {}, ["chat, small", "ports gives none to chat, small"]),
        ({"a": two()}, {"ports": {"chat": 80}}, ["gives none to small"]),
        ({"a": two()}, {"ports": {"chat": 80, "small": 80}}, ["port 80", "service chat"]),
        ({"a": OPEN}, {"stats": "127.0.0.1:8080"}, ["port 8080 of the statistics", "service llm"]),
        (
            {"a": OPEN, "b": {**OPEN, "recipe": OTHER}},
            {},
            ["Host b, service llm", "a serves", "give one of them another `service` name"],
        ),
        ({"spark%1": OPEN}, {}, ["Host spark%1", "letters, digits"]),
        ({"door": OPEN}, {"port": 8000}, ["port 8000", "the engine of service llm"]),
        ({"door": OPEN}, {"port": 18000}, ["port 18000", "the agent of service llm"]),
    ],
)
def test_a_gateway_that_cannot_be(
    catalog: Catalog, hosts: dict[str, Any], gateway: dict[str, Any], words: list[str]
) -> None:
    flat = {
        name: keys if "services" in keys else {"recipe": RECIPE, **keys}
        for name, keys in hosts.items()
    }
    plans = {name: resolve(spec, catalog, None) for name, spec in parse_fleet(flat).items()}
    with pytest.raises(SpecError) as caught:
        plan_gateway("door", parse_gateway("door", {"gateway": gateway}), plans)
    for word in words:
        assert word in str(caught.value)
