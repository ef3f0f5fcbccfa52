"""HAProxy's configuration as it is rendered. That HAProxy accepts it is seen in the lab."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkfleet.render import Answers, agent_unit
from sparkfleet.render_gateway import gateway_files
from sparkfleet.spec.gateway import CERTIFICATE, GatewayPlan, GatewaySpec, Route, Server

SERVER = Server("spark-1", "10.0.0.1", 8000, "10.0.0.1", 18000, 64)


def plan(*servers: Server, **keys: Any) -> GatewayPlan:
    route = Route("llm", 8080, ("small",), servers or (SERVER,))
    return GatewayPlan("door", GatewaySpec(**keys), (route,))


def lines(plan: GatewayPlan) -> list[str]:
    return [line.strip() for line in gateway_files(plan).config.splitlines()]


def section(plan: GatewayPlan, head: str) -> list[str]:
    text = gateway_files(plan).config
    return [line.strip() for line in text.split(f"\n{head}\n")[1].split("\n\n")[0].splitlines()]


def ports(plan: GatewayPlan) -> list[str]:
    text = gateway_files(plan).socket.replace('"', "")
    return [line[13:] for line in text.splitlines() if line.startswith("ListenStream=")]


def test_a_route_and_its_nodes() -> None:
    made = plan(SERVER, replace(SERVER, name="b", address="spark-b.local", maxconn=None))
    assert section(made, "frontend llm") == [
        "# 127.0.0.1:8080, held by systemd",
        "bind fd@3",
        "default_backend llm",
    ]
    backend = section(made, "backend llm")
    assert "server spark-1 10.0.0.1:8000 agent-addr 10.0.0.1 agent-port 18000 maxconn 64" in backend
    assert "server b spark-b.local:8000 agent-addr 10.0.0.1 agent-port 18000" in backend


def test_nothing_but_a_refused_connection_is_tried_again() -> None:
    said = [line for line in lines(plan()) if line.startswith("retry-on")]
    assert said == ["retry-on conn-failure"]


def test_statistics_only_where_the_owner_says() -> None:
    assert "stats" not in " ".join(lines(plan())).replace("stats socket", "")
    made = plan(stats="10.0.0.9:8404")
    assert "bind fd@4" in section(made, "frontend sparkfleet-stats")
    assert ports(made) == ["127.0.0.1:8080", "10.0.0.9:8404"], "in the order of inheritance"


def test_tls_reads_the_one_file() -> None:
    made = plan(certificate="door.pem", bind="::")
    assert f"bind fd@3 ssl crt {CERTIFICATE} alpn h2,http/1.1" in lines(made)
    assert ports(made) == ["[::]:8080"]


def test_ipv6_stands_in_brackets() -> None:
    made = plan(replace(SERVER, address="fd00::1", agent_address="fd00::1"), stats="::1:84")
    start = "server spark-1 [fd00::1]:8000 agent-addr fd00::1 "
    assert any(line.startswith(start) for line in lines(made))
    assert ports(made)[1] == "[::1]:84"


def test_times_are_the_owners() -> None:
    made = lines(plan(queue_timeout=7, answer_timeout=9, agent_interval=0.25))
    for line in ("timeout queue 7s", "timeout server 9s", "timeout client 9s"):
        assert line in made
    assert any("agent-inter 250ms" in line for line in made)


@pytest.mark.parametrize("word", ["a b", "a\nserver evil 1.2.3.4:80", "", 'a"b', "a#b"])
def test_what_is_no_plain_word_is_not_written(word: str) -> None:
    with pytest.raises(ValueError, match="no plain word"):
        gateway_files(plan(replace(SERVER, address=word)))


def test_the_same_plan_gives_the_same_bytes_and_each_change_another() -> None:
    first = gateway_files(plan()).digests
    assert gateway_files(plan()).digests == first
    assert gateway_files(plan(replace(SERVER, maxconn=32))).digests != first


def test_a_stop_saves_what_is_known_and_cuts_nothing() -> None:
    unit = gateway_files(plan()).unit
    assert unit.index("ExecReload=/usr/bin/python3") < unit.index("ExecReload=/bin/kill")
    assert "KillSignal=SIGUSR1" in unit and "ExecStop=-/usr/bin/python3" in unit


def test_an_agent_listens_only_for_a_gateway() -> None:
    assert "--answer" not in agent_unit("/srv")
    answers = Answers((("llm", "0.0.0.0", 18000), ("b", "::", 18001)), 2, 0.5)
    start = next(
        line for line in agent_unit("/srv", answers).splitlines() if line.startswith("ExecStart=")
    )
    words = start.replace('"', "").split(" --")[1:]
    assert words == ["root /srv", "answer llm=0.0.0.0:18000", "answer b=[::]:18001", "gateways 2",
                     "interval 0.5"]  # fmt: skip
