"""Holds rules against what a service would run. Generic: rows come from recipes, not from here."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.rules import Rule
from sparkfleet.spec.wording import quoted


@dataclass(frozen=True, slots=True)
class ModelDate:
    """What is known of the age of a model's files."""

    date: datetime.date | None
    """Day of the pinned commit; None until locked, or where the hub does not say."""
    not_before: datetime.date | None
    """The recipe's floor."""
    pinned: bool = False
    """Whether the lock has a commit, so that a date could be known."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a rule can speak of, as it would run."""

    flags: Mapping[str, Any]
    env: Mapping[str, str]
    image: ImageRef
    entrypoint: tuple[str, ...] | None
    utilization: float
    models: Mapping[str, ModelDate]

    def look(self, subject: str) -> Any:
        """The value of a subject; None where it is not there."""
        kind, _, name = subject.partition(":")
        if kind == "flag":
            flag, *keys = name.split(".")
            value = self.flags.get(flag)
            for key in keys:
                value = value.get(key) if isinstance(value, Mapping) else None
            # A flag that is false is written --no-…: what it names is off.
            return None if value is False else value
        if kind == "env":
            return self.env.get(name)
        if kind == "image":
            part = name or "reference"
            return getattr(self.image, part)
        if kind == "entrypoint":
            return " ".join(self.entrypoint) if self.entrypoint else None
        return self.utilization


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold."""

    rule: Rule
    what: str
    """What is wrong, without the reason; reads after the name of the place."""
    level: Literal["fail", "warn", "unknown"] = "fail"

    @property
    def sentence(self) -> str:
        """What is wrong, the rule, its reason and its source."""
        return (
            f"{self.what}. Rule {self.rule.name}: {self.rule.reason.rstrip('.')}. "
            f"(Source: {self.rule.source}.)"
        )


def judge(rules: Iterable[Rule], scene: Scene) -> Iterator[Broken]:
    """Every rule that is broken, or worth a warning, in the order of the rows."""
    for rule in rules:
        found = KINDS[rule.kind](rule, scene)
        if found is not None:
            yield found if isinstance(found, Broken) else Broken(rule, found)


def spoken(subject: str) -> str:
    """A subject as a person writes it."""
    kind, _, name = subject.partition(":")
    if kind == "flag":
        flag, _, keys = name.partition(".")
        return f'"{keys}" inside --{flag}' if keys else f"--{flag}"
    return {"env": f"environment variable {name}", "model": f"model {name}"}.get(
        kind, f"the {kind} {name}".strip()
    )


def same(one: Any, other: Any) -> bool:
    """Equal, where a text's case does not count and true is not 1."""
    if isinstance(one, str) and isinstance(other, str):
        return one.casefold() == other.casefold()
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def number(value: Any) -> float | None:
    """The number that a value is, also one written as a text, as environments do."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


Found = Broken | str | None


def _forbid(rule: Rule, scene: Scene) -> Found:
    value = scene.look(rule.subject)
    if value is None:
        return None
    if rule.value is None:
        return f"{spoken(rule.subject)} is set, to {quoted(value)}"
    if rule.subject.startswith(("image", "entrypoint")):
        hit = str(rule.value).casefold() in str(value).casefold()
    else:
        hit = same(value, rule.value)
    return f"{spoken(rule.subject)} is {quoted(value)}" if hit else None


def _require(rule: Rule, scene: Scene) -> Found:
    value = scene.look(rule.subject)
    if value is None:
        return f"{spoken(rule.subject)} is missing" + (
            f", it must be {quoted(rule.value)}" if rule.value is not None else ""
        )
    if rule.value is None or same(value, rule.value):
        return None
    return f"{spoken(rule.subject)} is {quoted(value)}, it must be {quoted(rule.value)}"


def _bound(rule: Rule, scene: Scene) -> Found:
    value = scene.look(rule.subject)
    side = "at most" if rule.kind == "at_most" else "at least"
    if value is None:
        return f"{spoken(rule.subject)} is not set, it must be {side} {quoted(rule.value)}"
    amount, limit = number(value), number(rule.value)
    if amount is None or limit is None:
        return f"{spoken(rule.subject)} is {quoted(value)}, no number"
    holds = amount <= limit if rule.kind == "at_most" else amount >= limit
    return None if holds else f"{spoken(rule.subject)} is {quoted(value)}, {side} {limit:g} allowed"


def _one_of(rule: Rule, scene: Scene) -> Found:
    value = scene.look(rule.subject)
    allowed = rule.value if isinstance(rule.value, list) else [rule.value]
    if value is None or any(same(value, one) for one in allowed):
        return None
    return f"{spoken(rule.subject)} is {quoted(value)}, it must be one of {quoted(allowed)}"


def _pair(rule: Rule, scene: Scene) -> Found:
    value, partner = scene.look(rule.subject), scene.look(rule.partner or "")
    if value is None or (rule.value is not None and not same(value, rule.value)):
        return None
    if partner is None or (
        rule.partner_value is not None and not same(partner, rule.partner_value)
    ):
        wanted = "" if rule.partner_value is None else f" {quoted(rule.partner_value)}"
        return (
            f"{spoken(rule.subject)} is {quoted(value)}, which needs "
            f"{spoken(rule.partner or '')}{wanted} beside it"
        )
    return None


def _not_before(rule: Rule, scene: Scene) -> Found:
    role = rule.subject.partition(":")[2]
    model = scene.models.get(role)
    if model is None or model.not_before is None:
        return None
    if model.date is None:
        what = f"the date of the pinned commit of {spoken(rule.subject)} is not known"
        return Broken(rule, what, "unknown") if model.pinned else None
    if model.date >= model.not_before:
        return None
    return (
        f"the pinned commit of {spoken(rule.subject)} is of {model.date}, "
        f"older than {model.not_before}"
    )


def _drafting_room(rule: Rule, scene: Scene) -> Found:
    """The scheduler needs batched − (n − 1) × sequences tokens a step for drafting."""
    batched = number(scene.look("flag:max-num-batched-tokens"))
    tokens = number(scene.look("flag:speculative-config.num_speculative_tokens"))
    seqs = number(scene.look("flag:max-num-seqs"))
    least = number(rule.value)
    method = scene.look("flag:speculative-config.method")
    if not same(method, "dflash") or tokens is None or least is None:
        return None
    if batched is None or seqs is None:
        missing = "--max-num-batched-tokens" if batched is None else "--max-num-seqs"
        return Broken(rule, f"{missing} is not set, so the drafting room is not known", "unknown")
    room = batched - (tokens - 1) * seqs
    sum_ = f"{batched:g} batched tokens − ({tokens:g} − 1) × {seqs:g} sequences = {room:g}"
    if room < least:
        return f"{sum_}, at least {least:g} is needed"
    if rule.warn is not None and room < rule.warn:
        return Broken(rule, f"{sum_}, below {rule.warn:g}", "warn")
    return None


KINDS: Mapping[str, Callable[[Rule, Scene], Found]] = {
    "forbid": _forbid,
    "require": _require,
    "at_most": _bound,
    "at_least": _bound,
    "one_of": _one_of,
    "pair": _pair,
    "not_before": _not_before,
    "drafting_room": _drafting_room,
}
