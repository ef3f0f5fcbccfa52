"""What an engine's log tells: how far a boot is, whether it counts, and what killed it."""

from __future__ import annotations

from pydantic import Field

from sparkfleet.spec.base import Model, Name, Rows, Text


class Marker(Model):
    """A line of the boot log that shows how far the engine is."""

    text: Text = Field(description="Substring of the line.")
    label: Text = Field(description="What a person sees.")
    usual_seconds: float | None = Field(
        default=None, description="Usual time since start, s; null: none."
    )


class Boot(Model):
    """How long a start takes and what it says on the way."""

    timeout_minutes: float = Field(
        default=30, gt=0, description="A start that takes longer has failed."
    )
    first_minutes: Rows[float] = Field(description="Usual first boot, from and to, minutes.")
    warm_minutes: Rows[float] = Field(description="Usual boot with warm caches, minutes.")
    markers: Rows[Marker] = Field(
        default=(), description="In the order in which they appear; none: those of _common.yaml."
    )
    source: Text = Field(description="Where the times were read.")


class LogLine(Model):
    """A substring of the engine's log and what it tells."""

    text: Text = Field(description="Substring, not a pattern.")
    reason: Text = Field(description="Why it must, or must not, be there.")
    rule: Name | None = Field(
        default=None, description="Not looked for where this rule is overridden or lifted."
    )
    source: Text | None = Field(default=None, description="Where it was read.")


class FatalLine(Model):
    """A log line of a dying engine, translated."""

    text: Text = Field(description="Substring.")
    meaning: Text = Field(description="A sentence: what it means.")
    next: Text = Field(description="A sentence: what to do.")


class Logs(Model):
    """Lines that decide whether a start counts."""

    forbidden: Rows[LogLine] = Field(default=(), description="Any of these fails the proof.")
    required: Rows[LogLine] = Field(default=(), description="All of these must be there.")
    fatal: Rows[FatalLine] = Field(
        default=(), description="Read when the engine has died, before those of _common.yaml."
    )
