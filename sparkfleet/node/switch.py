"""Switch a service from what runs to another release, or put back what ran.

    python3 switch.py JOB.json                           as a job
    python3 switch.py --settle --root R --service S      end a switch that was cut (the agent does)

The request is described in request.py.

The order is what keeps it safe. Everything that can be known is checked while the old release still
runs. The new one starts under trial, named in /run only, so that a power cut returns to `current`.
`current` moves only after the proof. From before the first change to the outcome, switch.json says
what is under way: whoever finds it without its lock held, ends it (a second run of the same
request, or the agent).

Results: switched, unchanged, started (the same release, started again) are what was asked for;
refused (nothing was touched), rolled_back (the old release is proven again), failed (there was none
to go back to; stopped, or `current` itself fails), down (the old release is not proven either).
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node.disk import Busy, hold_lock, read_json, remove
from sparkfleet.node.docker import DockerError
from sparkfleet.node.events import Events
from sparkfleet.node.failed import Failed, error_of, failed
from sparkfleet.node.faults import BUSY, FAILED, OK, Fault
from sparkfleet.node.layout import Release, Service, load_release
from sparkfleet.node.pending import Pending
from sparkfleet.node.preflight import preflight
from sparkfleet.node.prune import prune, told
from sparkfleet.node.request import Request
from sparkfleet.node.soak import soak
from sparkfleet.node.state import record
from sparkfleet.node.steps import Means, Steps

#: A switch that was cut this often is not tried again: the old release comes back.
TRIES = 3
#: Seconds for stopping or starting the owner's own containers.
ADOPT_TIMEOUT = 300.0
AS_ASKED = ("switched", "unchanged", "started")


class Switch:
    """One switch of one service. Its lock is held by the caller (see `perform`)."""

    def __init__(self, request: Request, events: Events, means: Means, job: str = "") -> None:
        self._request, self._events, self._means, self._job = request, events, means, job
        self._service = Service(request.root, request.service, means.run_dir)
        self._steps = Steps(self._service, events, means)
        self._pending = Pending(self._service)
        self._old = self._service.linked(self._service.current)
        self._began = means.clock()
        self._admitted = False
        """Whether the release under trial has been given requests."""

    def run(self) -> dict[str, Any]:
        """The outcome: result, from, to, seconds, and failure where there is one."""
        if back := self._pending.way_back(self._request.release):
            return self._go_back(back)
        if self._old == self._service.release_dir(self._request.release):
            return self._again(load_release(self._old))
        try:
            new = load_release(self._service.release_dir(self._request.release))
            if not self._joins(new):
                self._preflight(new)
        except (Fault, DockerError, OSError) as fault:
            # An earlier try that was cut may have stopped the old release already.
            failure = failed("preflight", fault)
            return self._go_back(failure) if self._pending else self._end("refused", failure)
        try:
            self._note()
            if self._pending.tries > TRIES:
                raise Failed("switch", f"It was cut {TRIES} times and is not tried again.")
            if not self._joins(new):
                self._adopt("park")
                self._replace(new)
            self._steps.watch(new)
            self._prove(new)
        except Failed as failure:
            if failure.phase == "drain":  # nothing was stopped
                self._adopt("put_back")
                return self._end("refused", failure)
            return self._go_back(failure)
        self._steps.promote(new, self._old)
        return self._end("switched")

    def settle(self) -> dict[str, Any]:
        """End a switch that was cut: go on with it; or, after a restart of the host, hold to
        `current`, which systemd has started."""
        if self._pending.boot == self._means.boot_id():
            return self.run()
        if self._old == self._service.release_dir(self._request.release):
            self._steps.promote(load_release(self._old))  # cut between the proof and the last line
            self._means.systemd.start(load_release(self._old).unit)
            return self._end("switched")
        why = "The host restarted in the middle of the switch."
        return self._go_back(Failed("switch", why, next="Run the deploy again."))

    def _preflight(self, release: Release) -> None:
        request, means = self._request, self._means
        with self._steps.timed("preflight", "checking all that needs no stop"):
            preflight(
                release,
                means.docker,
                means.run,
                gpu=request.gpu_check,
                making_way=request.adopted,
            )

    def _adopt(self, what: str) -> None:
        """Let the owner's own containers make way (`park`), or come back (`put_back`).

        Raises Failed with Docker's words."""
        script = self._request.adopt.get(what)
        if not script:
            return
        texts = {"park": "stopping what the owner runs by hand", "put_back": "starting it again"}
        with self._steps.timed("adopt", texts[what]):
            said = self._means.run(["sh", "-c", str(script)], ADOPT_TIMEOUT)
        if not said.ok:
            raise Failed(
                "adopt",
                f"What the owner started by hand could not be moved: {said.words()}",
                next="Look at docker ps -a on the host.",
            )

    def _again(self, release: Release) -> dict[str, Any]:
        """The release asked for is `current`: see that it runs and is proven."""
        runs = self._steps.runs(release) and not self._request.restart
        if runs and self._steps.is_proven():
            self._steps.promote(release)
            return self._end("unchanged")
        if runs and self._serves(release):
            self._steps.promote(release)
            return self._end("started")
        try:
            self._preflight(release)
        except (Fault, DockerError, OSError) as fault:
            return self._end("refused", failed("preflight", fault))
        try:
            self._note()
            self._replace(release)
            self._steps.watch(release)
            self._prove(release)
        except Failed as failure:
            if failure.phase == "drain":
                return self._end("refused", failure)
            self._steps.save("failed", reason=failure.detail)
            return self._end("failed", failure)
        self._steps.promote(release)
        return self._end("started")

    def _replace(self, release: Release) -> None:
        request = self._request
        self._steps.replace(release, drain_timeout=request.drain_timeout, then=request.drain_then)

    def _prove(self, release: Release) -> None:
        """Raises Failed unless it answers, takes requests, and goes on for as long as was asked."""
        self._steps.prove(release)
        self._steps.readmit()
        self._admitted = True
        soak(self._steps, self._means, release, self._request.soak)

    def _serves(self, release: Release) -> bool:
        """Whether what runs can be proven as it is; else a start is worth a try."""
        try:
            self._steps.watch(release)
            self._steps.prove(release)
        except Failed as failure:
            self._events.log(f"{failure.detail} Starting it again.")
            return False
        return True

    def _go_back(self, failure: Failed) -> dict[str, Any]:
        """Put back what ran before, and prove that; or, where nothing did, leave all stopped."""
        self._note(back=failure)
        self._events.phase("back", f"{failure.detail} Going back.")
        remove(self._service.trial)
        try:
            if self._old is None:
                self._leave_stopped(failure)
                if self._request.adopt:
                    self._steps.remove_container()
                    self._adopt("put_back")
                return self._end("failed", failure)
            old = load_release(self._old)
            if not self._steps.runs(old):
                if self._admitted:  # it may be answering somebody
                    self._steps.replace(old, drain_timeout=self._request.drain_timeout)
                else:
                    self._steps.stop(old)
                    self._steps.start(old)
            self._steps.watch(old)
            self._steps.prove(old)
            self._steps.promote(old)
            self._adopt("put_back")
        except (Failed, Fault, DockerError, OSError) as error:
            second = failed("back", error)
            self._steps.save("down", reason=f"{failure.detail} Then: {second.detail}")
            failure.detail += f" And what ran before did not come back: {second.detail}"
            failure.log += second.log
            return self._end("down", failure)
        return self._end("rolled_back", failure)

    def _leave_stopped(self, failure: Failed) -> None:
        new = load_release(self._service.release_dir(self._request.release))
        self._steps.stop(new)
        self._means.systemd.disable(new.unit)
        self._steps.save("failed", release=new.hash, reason=failure.detail)

    # What is on disk while it goes on, and after

    def _joins(self, release: Release) -> bool:
        """Whether a try that was cut has started `release` under trial already."""
        on_trial = self._service.on_trial() == release.dir
        return bool(self._pending) and on_trial and self._steps.runs(release)

    def _note(self, back: Failed | None = None) -> None:
        boot, now = self._means.boot_id(), self._means.clock()
        self._pending.note(self._request, boot=boot, job=self._job, now=now, back=back)

    def _end(self, result: str, failure: Failed | None = None) -> dict[str, Any]:
        self._steps.readmit()
        total = round(self._means.clock() - self._began, 1)
        outcome: dict[str, Any] = {
            "result": result,
            "from": self._old.name if self._old else None,
            "to": self._request.release,
            "seconds": {**self._steps.seconds, "total": total},
        }
        if failure is not None:
            outcome["failure"] = failure.as_dict()
        if result not in ("unchanged", "refused"):
            when = datetime.fromtimestamp(self._began, UTC).isoformat(timespec="seconds")
            record(self._service, {"who": self._request.who, "when": when} | outcome)
        self._pending.clear()
        return outcome | self._after(result)

    def _after(self, result: str) -> dict[str, Any]:
        """What runs now, whatever was asked for; and what was cleared away."""
        after: dict[str, Any] = {"runs": self._steps.running()}
        if result in ("switched", "started"):
            after["pruned"] = prune(self._service, self._means.docker, self._request.keep)
            if any(after["pruned"].values()):
                self._events.log(told(after["pruned"]))
        return after


def perform(
    request: Request, events: Events, means: Means, *, job: str = "", settle: bool = False
) -> int:
    """Hold the service's lock, switch, tell the outcome; returns the exit status."""
    service = Service(request.root, request.service, means.run_dir)
    try:
        with hold_lock(service.lock, patience=45.0, clock=means.clock, sleep=means.sleep):
            switch = Switch(request, events, means, job)
            outcome = switch.settle() if settle else switch.run()
    except Busy:
        fault = Fault(
            f"Another switch of {request.service} is under way.",
            where=str(service.lock),
            next="Wait for its end, then run the deploy again.",
            code="busy",
            exit=BUSY,
        )
        events.done(False, error=fault.as_error())
        return fault.exit
    except (Fault, DockerError, OSError) as error:
        fault = error if isinstance(error, Fault) else Fault(f"{error}.")
        events.done(False, error=fault.as_error())
        return fault.exit
    ok = outcome["result"] in AS_ASKED
    events.done(ok, outcome, None if ok else error_of(request.service, outcome))
    return OK if ok else FAILED


def _settle(root: Path, name: str) -> int:
    pending = Pending(Service(root, name))
    if not pending:
        return OK
    job, request = pending.job, pending.request
    with Events.for_request(job) if job and Path(job).exists() else Events(None) as events:
        return perform(request, events, Means(), job=job, settle=True)


def main(argv: list[str]) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Switch a service to another release.")
    parser.add_argument("job", nargs="?", type=Path, help="the request, as job.py writes it")
    parser.add_argument("--settle", action="store_true", help="end a switch that was cut")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--service")
    options = parser.parse_args(argv)
    try:
        if options.settle and options.root and options.service:
            return _settle(options.root, options.service)
        if options.job is None:
            parser.error("give a job's request, or --settle with --root and --service")
        with Events.for_request(options.job) as events:
            try:
                request = Request.parse(read_json(options.job))
            except Fault as fault:
                events.done(False, error=fault.as_error())
                return fault.exit
            return perform(request, events, Means(), job=str(options.job))
    except Fault as fault:
        print(fault, file=sys.stderr)
        return fault.exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
