"""hold: one run at a time. Whoever changes hosts holds each of them from before its first act.

The survey reads who holds a host, which costs nothing more. A run that finds nothing to do takes no
lease and disturbs nobody.
"""

from __future__ import annotations

import time

import gevent
from pyinfra.context import ctx_state

from sparkfleet.connector import SparkConnector
from sparkfleet.facts.host import HostFacts, Lease
from sparkfleet.fleet import Fleet
from sparkfleet.operations.lease import Answer, Holder
from sparkfleet.operations.step import at_the_end
from sparkfleet.runs import whoami
from sparkfleet.stages.begin import stop
from sparkfleet.stages.look import table_console
from sparkfleet.verdict import Failure

NEXT = (
    "Wait for its end, then run the same command again. Where that run has died, its hold ends by "
    "itself a minute after its last sign of life."
)


def refuse_held(fleet: Fleet) -> None:
    """End the run, nothing changed, where another run holds a host; a dry run only says so."""
    held = held_hosts(fleet)
    if not held:
        return
    said = "\n".join(held)
    if fleet.dry:
        table_console(fleet).print(said, style="yellow", highlight=False, soft_wrap=True)
        return
    stop(f"{said}\nNothing was changed. {NEXT}")


def held_hosts(fleet: Fleet) -> list[str]:
    """A sentence for each host that another run holds, as the survey read it."""
    return [
        held_by(name, lease, facts.time)
        for name, facts in fleet.facts.items()
        if isinstance(facts, HostFacts)
        and isinstance(lease := facts.lease, Lease)
        and lease.is_live(facts.time)
        and not fleet.run.has_ended(lease.run)
    ]


def held_by(host: str, lease: Lease, now: float) -> str:
    """Who holds `host` and since when; `now` is that host's clock, the time told is ours."""
    age = max(0.0, now - lease.since)
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - age))
    ago = f"{age:.0f} s" if age < 120 else f"{age / 60:.0f} min"
    return f"{host} is being changed by another run: {lease.who}, since {since} ({ago} ago)."


def hold(fleet: Fleet) -> None:
    """Take all hosts of the run before the first change, or begin none."""
    if not fleet.nothing:
        at_the_end(
            name="Hold the hosts for this run",
            work=lambda: fleet.once.do("hold", lambda: take(fleet)),
        )


def let_go(fleet: Fleet) -> None:
    """Give the hosts back, whatever became of the run."""
    if not fleet.nothing:
        at_the_end(
            name="Let go of the hosts",
            work=lambda: fleet.once.do("let go", lambda: give_back(fleet)),
        )


def take(fleet: Fleet) -> None:
    """A lease on every host that was reached. One that is refused refuses the run."""
    fleet.run.begin()
    fleet.run.sweep()
    reached = {**fleet.work, **fleet.gateway_work}
    fleet.holders = {name: _holder(fleet, name) for name in fleet.hosts if name in reached}
    asked = {name: gevent.spawn(one.take) for name, one in fleet.holders.items()}
    gevent.joinall(list(asked.values()))
    answers = {name: job.get() for name, job in asked.items()}
    refused = {name: one for name, one in answers.items() if one.word != "granted"}
    for name, answer in refused.items():
        fleet.verdict.fail(name, refusal(name, answer))
    if refused:
        fleet.verdict.refused = "No host was changed: this run does not hold all of its hosts."
        give_back(fleet)


def give_back(fleet: Fleet) -> None:
    """All leases of this run; hosts that another run has are left to it."""
    jobs = [gevent.spawn(one.give_back) for one in fleet.holders.values()]
    gevent.joinall(jobs)
    fleet.run.end(told=all(job.value for job in jobs))


def refusal(host: str, answer: Answer) -> Failure:
    """Why a host was not given to this run, or was taken from it."""
    if answer.word == "unheard":
        why = str(answer.lease["why"])
        return Failure(
            f"{host} could not be held for this run.", why, "Run the same command again."
        )
    lease = Lease.model_validate(answer.lease)
    if answer.word == "moved":
        return Failure(
            "Another run changed this host meanwhile.",
            f"{lease.who} held it after it was looked at, so what was found there may be outdated.",
            "Run the same command again: it looks afresh.",
        )
    return Failure(held_by(host, lease, float(answer.lease["now"])), next=NEXT)


def _holder(fleet: Fleet, name: str) -> Holder:
    connector = ctx_state.get().inventory.get_host(name).connector
    assert isinstance(connector, SparkConnector)
    facts = fleet.facts[name]
    lease = facts.lease if isinstance(facts, HostFacts) else None
    known = lease if isinstance(lease, Lease) else None
    request = {
        "root": fleet.root(name),
        "run": fleet.run.id,
        "who": whoami(),
        "seen": known.grants if known else None,
        "ended": [known.run] if known and fleet.run.has_ended(known.run) else [],
    }
    return Holder(connector, request, lambda answer: _lost(fleet, name, answer))


def _lost(fleet: Fleet, name: str, answer: Answer) -> None:
    taken = refusal(name, answer)
    fleet.verdict.fail(name, Failure(f"{name} was taken from this run. {taken.what}", taken.why))
