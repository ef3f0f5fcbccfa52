"""From a gateway's plan to HAProxy's configuration and the unit that runs it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from hashlib import sha256

from sparkfleet.escape import Escaped, number
from sparkfleet.render import NODE_PROGRAMS, PYTHON, UNIT_TEMPLATES, environment
from sparkfleet.spec.gateway import (
    CERTIFICATE,
    CONFIG,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    STATE_ROOT,
    UNITS,
    GatewayPlan,
    is_address,
)

SOCKET = "/run/sparkfleet-gateway/admin.sock"
SERVERS = f"{STATE_ROOT}/servers"
"""HAProxy's own account of its servers, saved before each reload and stop."""

CONNECTIONS = 4096
"""Clients at once, those that wait in the queue included."""

HARD_STOP = 6 * 3600
"""Seconds for the requests of an old process to end after a reload; no answer takes as long."""

STOP_TIMEOUT = 120
"""Seconds for requests under way to end when the gateway is stopped."""

_WORD = re.compile(r"^[A-Za-z0-9_./:-]+$")


def _word(value: object) -> Escaped:
    """A word of HAProxy's configuration; all that stand in ours are plain."""
    text = str(value)
    if not _WORD.match(text):
        raise ValueError(f"{text!r} is no plain word for HAProxy's configuration")
    return Escaped(text)


def _address(value: object) -> Escaped:
    """An address or a name before `:PORT`: IPv6 in brackets."""
    text = _word(value)
    six = is_address(text) and ipaddress.ip_address(text).version == 6
    return Escaped(f"[{text}]") if six else text


_HAPROXY = environment()
_HAPROXY.filters.update(word=_word, address=_address, number=number)


@dataclass(frozen=True, slots=True)
class GatewayFiles:
    """What stands on a gateway's host because of its plan."""

    config: str
    unit: str
    socket: str
    """The unit of the ports."""

    @property
    def digests(self) -> dict[str, str]:
        """Path → SHA-256."""
        texts = {
            CONFIG: self.config,
            f"{UNITS}/{GATEWAY_UNIT}": self.unit,
            f"{UNITS}/{GATEWAY_SOCKET}": self.socket,
        }
        return {path: sha256(text.encode()).hexdigest() for path, text in texts.items()}


def gateway_files(plan: GatewayPlan) -> GatewayFiles:
    """Render a gateway; the same plan gives the same bytes."""
    spec = plan.spec
    config = _HAPROXY.get_template("haproxy.cfg.j2").render(
        connections=CONNECTIONS,
        socket=SOCKET,
        state=SERVERS,
        hard_stop=HARD_STOP,
        certificate=CERTIFICATE if spec.certificate else None,
        queue_timeout=spec.queue_timeout,
        answer_timeout=spec.answer_timeout,
        agent_interval_ms=round(spec.agent_interval * 1000),
        bind=spec.bind,
        routes=plan.routes,
        stats=plan.stats,
    )
    save = [*PYTHON, f"{NODE_PROGRAMS}/servers.py", SOCKET, SERVERS]
    unit = UNIT_TEMPLATES.get_template("gateway.service.j2").render(
        config=CONFIG,
        pid="/run/sparkfleet-gateway/haproxy.pid",
        save=save,
        stop_timeout=STOP_TIMEOUT,
        socket=GATEWAY_SOCKET,
    )
    socket = UNIT_TEMPLATES.get_template("gateway.socket.j2").render(
        endpoints=[f"{_address(one.bind)}:{one.port}" for _, one in plan.endpoints],
        service=GATEWAY_UNIT,
    )
    return GatewayFiles(config, unit, socket)
