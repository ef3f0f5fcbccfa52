"""Rules are rows: what must hold of flags, environment, image and models, why, and who says so."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from sparkfleet.spec.base import Name, Sourced

Kind = Literal[
    "forbid",
    "require",
    "at_most",
    "at_least",
    "one_of",
    "pair",
    "not_before",
    "drafting_room",
]


class Rule(Sourced):
    """One row. `subject` is `flag:NAME`, `flag:NAME.KEY` (a key inside a JSON value), `env:NAME`,
    `image` (the whole reference), `image:tag`, `image:repository`, `entrypoint`, `utilization` or
    `model:ROLE`.

    forbid         the subject must be absent; with `value`, it must not equal it (for `image`,
                   its parts and `entrypoint`: must not contain it)
    require        the subject must be there; with `value`, it must equal it
    at_most, at_least   the number must not pass `value`
    one_of         the subject, where set, must be one of the list `value`
    pair           where the subject is set (with `value`: equals it), `partner` must be set too
                   (with `partner_value`: equal it)
    not_before     the pinned commit of `model:ROLE` must not be older than its `not_before`
    drafting_room  batched tokens − (speculative tokens − 1) × sequences must be at least `value`;
                   below `warn` it is only said
    """

    name: Name = Field(description="What an override names.")
    kind: Kind = Field(description="How the row is read; see above.")
    subject: str = Field(
        pattern=r"^(flag:[a-z0-9-]+(\.\w+)*|env:\w+|image(:tag|:repository)?|entrypoint|utilization|model:\w+)$",
        description="What the row speaks of.",
    )
    value: JsonValue = Field(default=None, description="What it is compared with.")
    partner: str | None = Field(
        default=None,
        pattern=r"^(flag:[a-z0-9-]+(\.\w+)*|env:\w+)$",
        description="For pair: what must stand beside the subject.",
    )
    partner_value: JsonValue = Field(
        default=None, description="For pair: what the partner must equal."
    )
    warn: float | None = Field(
        default=None, description="For drafting_room: below this it is shown."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if self.kind in ("at_most", "at_least", "drafting_room") and not number:
            raise ValueError(f"of kind {self.kind} needs a number as value")
        if self.kind == "one_of" and not isinstance(self.value, list):
            raise ValueError("of kind one_of needs a list as value")
        if (self.kind == "pair") != (self.partner is not None):
            raise ValueError("needs partner exactly when its kind is pair")
        if self.kind == "not_before" and not self.subject.startswith("model:"):
            raise ValueError("of kind not_before speaks of model:ROLE")
        return self
