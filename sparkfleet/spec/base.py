"""What every model of the data shares: nothing is guessed, nothing unknown is let through."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, Strict

T = TypeVar("T")

Rows = Annotated[tuple[T, ...], Strict(False)]
"""A YAML list, kept as a tuple so that a loaded model can't be changed by accident."""

FlagValue = bool | int | float | str | list[str | int | float] | dict[str, JsonValue]
"""The value of an engine flag: true is a bare flag, a list is several words, a mapping is JSON in
one word with compact separators, anything else is written as it stands."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]*$"

FlagName = Annotated[str, Field(pattern=NAME_PATTERN)]
"""An engine option as its documentation spells it, without the dashes before it."""

FlagPath = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*(\.\w+)*$")]
"""A flag, or a key inside a flag's JSON value: `speculative-config.num_speculative_tokens`."""

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=48)]
"""A name that is also a file, unit and container name: lower case, digits, dashes."""

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
"""A text that says something."""

Utilization = Annotated[float, Field(gt=0, lt=1)]
"""Fraction of the memory that the system reports (MemTotal, 121.7 GiB on a GB10; not of 128)."""

UTILIZATION = "${utilization}"
"""Stands in a recipe's flags and environment for the utilization resolved for the service."""


class Model(BaseModel):
    """Base of every model: strict types, no unknown keys, frozen."""

    # Deferred: only the models that a run reads into build a validator, not each of their parts.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Sourced(Model):
    """A row that says why it is there and where that was read."""

    reason: Text = Field(description="Why, in words that an error message can quote.")
    source: Text = Field(description="Where it was read: a document, a thread, or 'ours'.")


class Misfit(ValueError):
    """A validator's complaint about something inside the model, so that its line can be shown."""

    def __init__(self, message: str, *place: str | int) -> None:
        super().__init__(message)
        self.place = place
        """From the model to the fault; the message reads after the fault's name."""
