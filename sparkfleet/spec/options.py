"""What a play is told with `--data` beside what holds for hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field, ValidationError, model_validator

from sparkfleet.spec.base import Misfit, Model, Name
from sparkfleet.spec.wording import Reader


class Options(Model):
    """The options of one play; none, unless a play has its own."""


class LockOptions(Options):
    """plays/lock.py: pin what is not pinned, or one of these."""

    check: bool = Field(default=False, description="Say what has moved upstream; write nothing.")
    update: Name | None = Field(default=None, description="The recipe whose pins are to move.")

    @model_validator(mode="after")
    def _one_of_them(self) -> LockOptions:
        if self.check and self.update:
            raise Misfit("goes on its own: it writes nothing, and update does", "check")
        return self


class DrainOptions(Options):
    """plays/drain.py."""

    reason: str = Field(default="", description="Why the host is taken out; the status shows it.")


OF_PLAYS: dict[str, type[Options]] = {"drain.py": DrainOptions, "lock.py": LockOptions}
"""File name of a play → the options it takes."""


def split_options(play: str, data: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """The options of `play` among what `--data` gave, and the rest, which is of hosts.

    Raises SpecError for an option of the wrong kind. A key that is neither an option nor a host's
    is refused where the hosts are read.
    """
    model = OF_PLAYS.get(PurePosixPath(play).name, Options)
    own = {key: value for key, value in data.items() if key in model.model_fields}
    rest = {key: value for key, value in data.items() if key not in own}
    try:
        return model.model_validate(own), rest
    except ValidationError as error:
        raise Reader(model, start=lambda place: f"{play}, --data").explain(error, own) from None
