"""The few words that we exchange with systemd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkfleet.node.commands import Outcome, Runner, run
from sparkfleet.node.disk import write_whole
from sparkfleet.node.faults import Fault

UNITS = Path("/etc/systemd/system")
_SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "UnitFileState")


@dataclass(frozen=True)
class Unit:
    """What systemd says of a unit."""

    active: str = "unknown"
    """active, inactive, activating, deactivating, failed; unknown when it gave no answer."""
    sub: str = ""
    result: str = ""
    restarts: int = 0
    enabled: bool = False
    loaded: bool = True

    @property
    def gave_up(self) -> bool:
        """Whether systemd will not start it again by itself."""
        return self.active == "failed"

    def words(self) -> str:
        """Its state for a sentence."""
        reasons = {
            "exit-code": "its program ended with an error",
            "signal": "its program was killed",
            "timeout": "it ran out of time",
            "oom-kill": "it was killed for want of memory",
        }
        # Our units restart always, so one that has failed was restarted as often as it may be.
        # systemd 257 keeps the last end as the result; others say start-limit-hit.
        spent = "its restarts are used up" if self.gave_up else ""
        why = ", ".join(filter(None, (reasons.get(self.result, ""), spent)))
        return f"{self.active} ({why})" if why else self.active


class Systemd:
    """systemctl and journalctl, each call bounded."""

    def __init__(self, runner: Runner = run, units: Path = UNITS) -> None:
        self._run, self._units = runner, units

    def show(self, unit: str) -> Unit:
        """State of `unit`; `unknown` when systemd does not answer."""
        outcome = self._run(["systemctl", "show", "-p", ",".join(_SHOWN), "--", unit], 15)
        fields = dict(line.split("=", 1) for line in outcome.out.splitlines() if "=" in line)
        if not outcome.ok or "ActiveState" not in fields:
            return Unit()
        restarts = fields.get("NRestarts", "0")
        return Unit(
            active=fields["ActiveState"],
            sub=fields.get("SubState", ""),
            result=fields.get("Result", ""),
            restarts=int(restarts) if restarts.isdigit() else 0,
            enabled=fields.get("UnitFileState") == "enabled",
            loaded=fields.get("LoadState") == "loaded",
        )

    def start(self, unit: str) -> None:
        """Have it started, without waiting: an engine takes minutes. Clears an earlier failure."""
        self._run(["systemctl", "reset-failed", "--", unit], 15)
        self._do("start", ["systemctl", "start", "--no-block", "--", unit], unit, 30)

    def stop(self, unit: str, seconds: float) -> None:
        """Stop it and wait for its end, `seconds` at most. An unknown unit is a stopped one."""
        if self.show(unit).loaded:
            self._do("stop", ["systemctl", "stop", "--", unit], unit, seconds)

    def restart(self, unit: str) -> Outcome:
        """Restart it without waiting; counts against the unit's own cap."""
        return self._run(["systemctl", "restart", "--no-block", "--", unit], 30)

    def enable(self, unit: str) -> None:
        """Have it started at boot."""
        self._do("enable", ["systemctl", "enable", "--", unit], unit, 60)

    def disable(self, unit: str) -> None:
        """Have it not started at boot; clears a failed state, so that it reads as stopped."""
        self._run(["systemctl", "disable", "--", unit], 60)
        self._run(["systemctl", "reset-failed", "--", unit], 15)

    def install(self, unit: str, text: str) -> bool:
        """Put the unit file in place when it differs; True when it did."""
        path = self._units / unit
        try:
            if path.read_text(encoding="utf-8") == text:
                return False
        except OSError:
            pass
        write_whole(path, text)
        self._do("reload its units", ["systemctl", "daemon-reload"], unit, 90)
        return True

    def installed(self, unit: str) -> str | None:
        """The unit file in place, or None."""
        try:
            return (self._units / unit).read_text(encoding="utf-8")
        except OSError:
            return None

    def journal(self, unit: str, since: float, lines: int = 60) -> list[str]:
        """The last lines that `unit` wrote since `since` (seconds since 1970)."""
        argv = ["journalctl", "-u", unit, "--since", f"@{int(since)}", "-n", str(lines)]
        outcome = self._run([*argv, "-o", "cat", "--no-pager", "-q"], 20)
        return outcome.out.splitlines() if outcome.ok else []

    def _do(self, verb: str, argv: list[str], unit: str, seconds: float) -> None:
        outcome = self._run(argv, seconds)
        if not outcome.ok:
            raise Fault(
                f"systemd did not {verb} {unit}.",
                why=f"It said: {outcome.words() or f'exit status {outcome.code}'}.",
                next=f"Look at `systemctl status {unit}` on the host.",
                code="systemd",
            )
