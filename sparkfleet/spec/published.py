"""What others published beside the command: figures, disagreements, and the gaps that we filled."""

from __future__ import annotations

from pydantic import Field, JsonValue

from sparkfleet.spec.base import Model, Rows, Text


class Figures(Model):
    """Published measurements and the conditions they were taken under."""

    what: Text = Field(description="What was measured.")
    conditions: Text = Field(description="Streams, temperature, lengths, build.")
    figures: dict[str, JsonValue] = Field(description="Label → figure, units in the label.")
    source: Text = Field(description="Where they were published.")


class Conflict(Model):
    """Where sources disagree, and what we do."""

    topic: Text = Field(description="What they disagree about.")
    sources: Rows[Text] = Field(min_length=2, description="What each says.")
    decision: Text = Field(description="What this recipe does, and why.")


class Risk(Model):
    """A fault that is known and not mended; shown when the recipe enters the lock."""

    what: Text = Field(description="A sentence: what can happen, and when.")
    source: Text = Field(description="Where it was read.")


class Choice(Model):
    """What no source says and a working default needs: ours, one line to change."""

    key: Text = Field(description="Key of this recipe.")
    value: JsonValue = Field(description="What we chose.")
    reason: Text = Field(description="Why.")
