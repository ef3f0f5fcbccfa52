"""Bad inventory data is refused in a sentence that names host, key and value."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import SERVICE_KEYS, HostSpec, overlay, parse_fleet, parse_host
from sparkfleet.spec.resolve import resolve

TWO = {"a": {"recipe": "r"}, "b": {"recipe": "r"}}


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"recipe": "r", "utilisation": 0.8}, "utilisation", ["0.8", "Did you mean utilization?"]),
        ({"recipe": "r", "presett": "alone"}, "presett", ['"alone"', "Did you mean preset?"]),
        ({"recipe": "r", "utilization": ""}, "utilization", ['is ""', "empty"]),
        ({"recipe": "r", "utilization": "0.85"}, "utilization", ['"0.85"', "without quotes"]),
        ({"recipe": "r", "utilization": 1.2}, "utilization", ["1.2", "below 1"]),
        ({"recipe": "r", "utilization": 0}, "utilization", ["0", "above 0"]),
        ({"recipe": "r", "utilization": True}, "utilization", ["true", "a number"]),
        ({"recipe": "r", "utilization": float("nan")}, "utilization", ["NaN"]),
        ({"recipe": "r", "bind": "spark-1"}, "bind", ['"spark-1"', "IP address"]),
        ({"recipe": "r", "port": 80}, "port", ["80", "1024 or more"]),
        ({"recipe": "r", "port": 65536}, "port", ["65536", "65535 or less"]),
        ({"recipe": "r", "port": "8000"}, "port", ['"8000"', "without quotes"]),
        ({"recipe": "r", "port": 8000.5}, "port", ["8000.5", "whole number"]),
        ({"recipe": "r", "agent_port": 80}, "agent_port", ["80", "1024 or more"]),
        ({"recipe": "r", "agent_port": 8000}, "agent_port", ["8000", "service llm has already"]),
        ({"recipe": "r", "agent_bind": "x"}, "agent_bind", ['"x"', "IP address"]),
        ({"recipe": "r", "drain_timeout": -1}, "drain_timeout", ["-1"]),
        ({"recipe": "r", "drain_then": "hope"}, "drain_then", ["'wait', 'proceed' or 'abort'"]),
        ({"recipe": "r", "address": "a b"}, "address", ['"a b"']),
        ({"recipe": "r", "auth": "nokey"}, "auth", ['"nokey"', "'key' or 'none'"]),
        ({}, "recipe", ["recipe is missing"]),
        ({"recipe": "r", "services": TWO}, "recipe", ["services", "beside services"]),
        ({"services": TWO}, "services.b.port", ["8000", "service a has already"]),
        ({"services": {}}, "services", ["{}"]),
        ({"services": {"A b": {"recipe": "r"}}}, "services.A b", ["lower-case"]),
        ({"recipe": "r", "flags": {"kv_cache_dtype": "x"}}, "flags.kv_cache_dtype",
         ["kv-cache-dtype would be"]),
        ({"recipe": "r", "flags": {"x": [True]}}, "flags.x", ["[true]", "list of words"]),
        ({"recipe": "r", "preset": "alone", "reserve_gib": 9}, "preset", ["reserve_gib"]),
        ({"recipe": "r", "overrides": {"rule": " "}}, "overrides.rule", ['" "']),
        ({"recipe": "r", "restart_docker": "yes"}, "restart_docker", ['"yes"', "true or false"]),
        ({"recipe": "r", "hardware": None}, "hardware", ["null"]),
        ({"recipe": "r", "root": "relative"}, "root", ['"relative"', "an absolute path"]),
        ({"recipe": "r", "utilization": "most"}, "utilization", ["must be a number. ("]),
        ({"recipe": "r", "env": {"A-B": "x"}}, "env.A-B", ["a name of letters, digits and _"]),
        ({"recipe": "r", "env": {"A": "x\0"}}, "env.A", ["no file can carry"]),
        ({"recipe": "r", "flags": {"x": ["\ud800"]}}, "flags.x", ["no file can carry"]),
    ],
)  # fmt: skip
def test_refused(keys: dict[str, Any], key: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_host("h1", keys)
    message = str(caught.value)
    assert message.startswith("Host h1: ")
    assert (caught.value.host, caught.value.key) == ("h1", key)
    for word in words:
        assert word in message
    assert "\n" not in message


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(SpecError, match="Host h1: the key 3 in env is no text"):
        parse_host("h1", {"recipe": "r", "env": {3: "x"}})


@pytest.mark.parametrize("keys", [{"k" * 3000: 1}, {"service": "s" * 5000}])
def test_what_is_long_is_cut(keys: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_host("h1", {"recipe": "r", **keys})
    assert len(str(caught.value)) < 1000


def test_flat_form_is_one_service_named_llm() -> None:
    host = parse_host("h1", {"recipe": "r", "ssh_user": "x", "_sudo": True, "spark_x": 1})
    assert list(host.services) == ["llm"]
    assert host.models_dir == "/var/lib/sparkfleet/models"
    assert list(parse_host("h1", {"recipe": "r", "service": "chat"}).services) == ["chat"]


def test_own_size_replaces_the_groups() -> None:
    service = parse_host("h1", {"utilization": 0.7}, {"recipe": "r", "preset": "alone"})
    assert (service.services["llm"].utilization, service.services["llm"].preset) == (0.7, None)


def test_what_a_host_says_of_its_gateway_lies_over_what_the_group_says() -> None:
    low, high = {"gateway": {"bind": "0.0.0.0", "port": 80}}, {"gateway": {"port": 81}}
    assert overlay(low, high) == {"gateway": {"bind": "0.0.0.0", "port": 81}}
    assert overlay({"gateway": 1}, high) == high


def test_groups_flat_keys_hold_for_each_service_but_the_port() -> None:
    own = {"services": {"a": {"reserve_gib": 60}, "b": {"port": 8001}}}
    host = parse_host("h1", own, {"recipe": "r", "preset": "shared", "port": 9000})
    a, b = host.services["a"], host.services["b"]
    assert (a.recipe, a.reserve_gib, a.preset, a.port) == ("r", 60, None, 8000)
    assert (b.recipe, b.preset, b.port) == ("r", "shared", 8001)


def test_every_host_is_told_at_once() -> None:
    fleet = {"h1": {"recipe": "r", "port": 1}, "h2": {"recipe": "r"}, "h3": {"recipe": ""}}
    with pytest.raises(SpecError) as caught:
        parse_fleet(fleet)
    assert [error.host for error in caught.value.errors] == ["h1", "h3"]
    assert len(str(caught.value).splitlines()) == 2


def test_one_box_under_two_names() -> None:
    fleet = {"h1": {"recipe": "r", "ssh_hostname": "10.0.0.1"},
             "h2": {"recipe": "r", "ssh_hostname": "10.0.0.1"}}  # fmt: skip
    with pytest.raises(SpecError, match="h1 and h2 are the same box"):
        parse_fleet(fleet)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
KEYS = st.sampled_from([*HostSpec.model_fields, *SERVICE_KEYS, "service", "sevice"])


@given(data=st.dictionaries(KEYS, JUNK, max_size=5), sane=st.booleans())
def test_anything_is_read_or_refused_in_words(
    data: dict[str, Any], sane: bool, catalog: Catalog
) -> None:
    data.pop("name", None)
    if sane:
        data["recipe"] = "qwen36-35b-heretic"
    try:
        resolve(parse_host("h1", data), catalog, None)
    except SpecError as error:
        for part in error.errors:
            assert re.match(r"Host h1\b", str(part)) and part.host == "h1" and part.key
