"""A fault that the owner of the box can act on: said in sentences, carried as data."""

from __future__ import annotations

#: Exit codes of the programs of this folder. CONFIG is the unit's cue not to try again
#: (EX_CONFIG of sysexits.h): the same start would meet the same fault.
OK, FAILED, CONFIG, BUSY = 0, 1, 78, 75


class Fault(Exception):
    """What happened, where, why and the next step, each a sentence or a part of one."""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        why: str = "",
        next: str = "",
        code: str = "error",
        exit: int = FAILED,
    ) -> None:
        super().__init__(what)
        self.what, self.where, self.why, self.next = what, where, why, next
        self.code, self.exit = code, exit

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return " ".join(part for part in (f"{where}{self.what}", self.why, self.next) if part)

    def as_error(self) -> dict[str, str]:
        """The `error` of a `done` event."""
        return {
            "what": self.what,
            "where": self.where,
            "why": self.why,
            "next": self.next,
            "code": self.code,
        }
