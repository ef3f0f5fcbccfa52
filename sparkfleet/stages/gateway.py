"""gateway: HAProxy before the nodes, from the host's own packages; reloaded only on a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkfleet.connector import SparkConnector
from sparkfleet.console.progress import ProgressLines
from sparkfleet.fleet import PROJECT, Fleet
from sparkfleet.operations.bundle import Placement, install_script, tarball
from sparkfleet.operations.jobs import run_job
from sparkfleet.operations.step import say, step
from sparkfleet.programs import program_digests
from sparkfleet.render_gateway import SOCKET, gateway_files
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.gateway import (
    CERTIFICATE,
    CONFIG,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    STATE_ROOT,
    Endpoint,
    GatewayPlan,
)
from sparkfleet.stages.begin import this_host
from sparkfleet.stages.stage import failure_of, install_programs
from sparkfleet.verdict import Failure
from sparkfleet.work import HostWork
from sparkfleet.work_gateway import GatewayWork, WantedGateway

INCOMING = f"{STATE_ROOT}/incoming"
"""Where new files wait until HAProxy itself has found them good."""

TIMEOUT = 3600.0
"""Seconds for the whole step, waiting for the package lock included."""


def gateway(fleet: Fleet) -> None:
    """Bring the gateway on this host to what the inventory says; nothing where there is none."""
    name = this_host().name
    work = fleet.gateway_work.get(name)
    if work is None or work.nothing:
        return
    if work.programs:
        step(fleet.verdict, "Install the node programs", install_programs(HostWork(name)))
    if work.package or work.files or work.start:
        step(fleet.verdict, "Bring up the gateway", bring_up(fleet, work))


def wanted_gateway(fleet: Fleet, name: str) -> WantedGateway:
    """What a gateway's host should have. Raises SpecError where the certificate is not usable."""
    plan = fleet.gateways[name]
    path = plan.spec.certificate
    certificate = read_certificate(name, path) if path else None
    return WantedGateway(gateway_files(plan), program_digests(), certificate)


def read_certificate(host: str, name: str) -> bytes:
    """The PEM file with certificate, chain and key. Raises SpecError that says what it lacks."""

    def wrong(why: str, next_step: str) -> SpecError:
        return SpecError(
            f"Gateway {host}: certificate {name} can't be used: {why}. {next_step}",
            host=host,
            file=name,
            key="certificate",
        )

    path = PROJECT / name
    try:
        mode, text = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise wrong(reason, "Name a PEM file on this machine.") from None
    for part, mark in (("certificate", b"BEGIN CERTIFICATE"), ("private key", b"PRIVATE KEY-----")):
        if mark not in text:
            raise wrong(f"it holds no {part}", "HAProxy wants certificate, chain and key in one.")
    if mode & 0o077:
        raise wrong("others may read it, and it holds a private key", f"chmod 600 {name}")
    return text


def bring_up(fleet: Fleet, work: GatewayWork) -> Any:
    """The step that hands over the new files and has them checked, installed and taken up."""

    def run(connector: SparkConnector) -> Failure | None:
        wanted, plan = wanted_gateway(fleet, work.host), fleet.gateways[work.host]
        files = [Placement(INCOMING, _incoming(wanted), directory_mode=0o700)]
        script = install_script(STATE_ROOT, files)
        answer = connector.run(script, stdin=tarball(files), timeout=60)
        if not answer.ok:
            return Failure(
                "The gateway's files could not be written.",
                answer.errors,
                "Look at the file systems of the host (full, read-only?), then run this again.",
            )
        outcome = run_job(
            connector,
            root=STATE_ROOT,
            name="gateway",
            program="gateway.py",
            request=request_of(plan),
            timeout=TIMEOUT,
            watch=ProgressLines(say(connector.host)),
        )
        return None if outcome.ok else failure_of(outcome.error, _log(outcome.result))

    return run


def request_of(plan: GatewayPlan) -> dict[str, Any]:
    """What node/gateway.py is asked for."""
    return {
        "incoming": INCOMING,
        "config": CONFIG,
        "certificate": CERTIFICATE,
        "unit": GATEWAY_UNIT,
        "ports": GATEWAY_SOCKET,
        "socket": SOCKET,
        "endpoints": [[_reached(one), one.port] for _, one in plan.endpoints],
    }


def gateway_state(fleet: Fleet, name: str) -> str:
    """One word on a gateway, for the report."""
    work = fleet.gateway_work.get(name)
    if name in fleet.verdict.failures:
        return "FAILED"
    if work is None:
        return "left out"
    return "up" if work.nothing or not fleet.dry else "not begun"


def gateway_lines(plan: GatewayPlan, state: str) -> Iterator[str]:
    """What the report says of a gateway: where each service is reached."""
    scheme = "https" if plan.spec.certificate else "http"
    for route in plan.routes:
        host = plan.name if plan.spec.bind in ("0.0.0.0", "::") else plan.spec.bind
        yield (
            f"Gateway {plan.name}: {state}; {route.service} at {scheme}://{host}:{route.port}/v1, "
            f"{len(route.servers)} nodes."
        )
    if plan.stats:
        yield (
            f"Gateway {plan.name}: statistics at http://{plan.spec.stats}/, for Prometheus at "
            f"http://{plan.spec.stats}/metrics."
        )


def _incoming(wanted: WantedGateway) -> dict[str, tuple[bytes, int]]:
    files = {
        "haproxy.cfg": (wanted.files.config.encode(), 0o644),
        GATEWAY_UNIT: (wanted.files.unit.encode(), 0o644),
        GATEWAY_SOCKET: (wanted.files.socket.encode(), 0o644),
    }
    if wanted.certificate is not None:
        files["tls.pem"] = (wanted.certificate, 0o600)
    return files


def _reached(endpoint: Endpoint) -> str:
    """Where the gateway's own host reaches it."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.bind, endpoint.bind)


def _log(result: Any) -> tuple[str, ...]:
    return tuple((result or {}).get("log") or ())
