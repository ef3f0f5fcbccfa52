"""A recipe: everything that is published about serving one model, with a source for each figure."""

from __future__ import annotations

import datetime
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from sparkfleet.spec.base import (
    EnvName,
    FlagName,
    FlagValue,
    Model,
    Name,
    Rows,
    Sourced,
    Text,
    Utilization,
)
from sparkfleet.spec.image import EngineImage
from sparkfleet.spec.proof import Proof
from sparkfleet.spec.rules import Rule


class TensorNames(Sourced):
    """Prefixes of tensor names, read from the safetensors header without loading the weights."""

    require: Rows[Text] = Field(description="Each must begin some tensor's name.")
    forbid: Rows[Text] = Field(default=(), description="None may begin a tensor's name.")


class ModelFiles(Model):
    """A repository of weights on the hub and where it is mounted."""

    repo: str = Field(
        pattern=r"^[\w.-]+/[\w.-]+$", description="Owner and name; case matters on the hub."
    )
    revision: Text = Field(
        default="main", description="Branch, tag or commit that the lock resolves."
    )
    mount: str = Field(pattern=r"^/[\w./-]+$", description="Path inside the container, read-only.")
    not_before: datetime.date | None = Field(
        default=None, description="Commits older than this day are known to be broken."
    )
    weights_gib: float | None = Field(default=None, gt=0, description="Size of the weights, GiB.")
    include: Rows[Text] | None = Field(
        default=None, description="Globs of files to fetch; null: all."
    )
    exclude: Rows[Text] = Field(default=(), description="Globs of files to leave out.")
    tensors: TensorNames | None = Field(default=None, description="Checked on the staged files.")
    source: Text = Field(description="Where repository, date and size were read.")


class Command(Model):
    """The engine's command line in the published order."""

    positional: Rows[str] = Field(
        default=(), description="Words before the flags, such as serve /model."
    )
    flags: dict[FlagName, FlagValue] = Field(description="Flags in order, without dashes.")
    environment: dict[FlagName, EnvName] = Field(
        default_factory=dict,
        description="For an image driven by its environment: flag → variable that carries it. "
        "When set, no flag reaches the command line; those not named here are the image's own.",
    )
    source: Text = Field(description="Where the command was published.")


class Addition(Sourced):
    """A flag that the published command lacks and we add."""

    flag: FlagName = Field(description="Rendered after the published flags.")
    value: FlagValue = Field(description="Its value.")
    when: Literal["always", "auth-key"] = Field(
        default="always", description="Only with auth: key."
    )


class Cap(Sourced):
    """The highest utilization allowed."""

    value: Utilization = Field(description="Fraction of MemTotal.")


class Memory(Model):
    """Estimates until the boot log tells the engine's own figures."""

    weights_gib: float | None = Field(
        default=None, gt=0, description="Weights and drafter loaded, GiB."
    )
    kv_bytes_per_token: int | None = Field(
        default=None, gt=0, description="KV cache, bytes a token."
    )
    free_gib: float | None = Field(
        default=None, gt=0, description="Least free memory at start, GiB."
    )
    source: Text | None = Field(default=None, description="Where the figures were read.")


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
    markers: Rows[Marker] = Field(description="In the order in which they appear.")
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
    fatal: Rows[FatalLine] = Field(default=(), description="Read when the engine has died.")


class Fallback(Sourced):
    """A known way out of trouble that costs something; the owner names it, it is shown."""

    flags: dict[FlagName, FlagValue | None] = Field(
        description="Set over the recipe's; null drops."
    )
    cost: Text = Field(description="What it costs, for reports.")
    lifts: Rows[Name] = Field(default=(), description="Rules that it lifts.")


class Variant(Sourced):
    """Another way to serve the same recipe: only what differs."""

    extends: Name | None = Field(default=None, description="Another variant to start from.")
    title: Text = Field(description="A few words.")
    flags: dict[FlagName, FlagValue | None] = Field(default_factory=dict, description="null drops.")
    env: dict[EnvName, str | None] = Field(default_factory=dict, description="null drops.")
    models: dict[str, ModelFiles] = Field(default_factory=dict, description="Added by role.")
    presets: dict[Name, Utilization] = Field(default_factory=dict, description="Set over.")
    required_logs: Rows[LogLine] = Field(default=(), description="Required beside the recipe's.")
    drafts: bool | None = Field(default=None, description="Whether draft counters must climb.")


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


class Choice(Model):
    """What no source says and a working default needs: ours, one line to change."""

    key: Text = Field(description="Key of this recipe.")
    value: JsonValue = Field(description="What we chose.")
    reason: Text = Field(description="Why.")


class Wedge(Model):
    """When a running engine counts as hung."""

    seconds: float = Field(
        default=300, gt=0, description="Requests running and no token for this long."
    )
    source: Text = Field(default="ours", description="Where the limit comes from.")


class Restart(Model):
    """How often a service may restart by itself."""

    burst: int = Field(
        default=3, ge=1, le=10, description="Starts within the window, then it stays down."
    )


class Recipe(Model):
    """One file of recipes/."""

    name: Name = Field(description="The file's stem; what an inventory names.")
    title: Text = Field(description="One line for tables.")
    description: Text = Field(description="A few sentences.")
    sources: Rows[Text] = Field(min_length=1, description="Short name: document, one each.")
    responsibility: Text | None = Field(
        default=None, description="The publisher's word, shown at lock."
    )
    hardware: Rows[Name] = Field(min_length=1, description="Profiles it is published for.")
    image: EngineImage = Field(description="The engine image.")
    models: dict[str, ModelFiles] = Field(min_length=1, description="By role: model, drafter, ….")
    container: Name = Field(description="Container name, as published.")
    command: Command = Field(description="The published command line.")
    additions: Rows[Addition] = Field(default=(), description="Ours, each with its reason.")
    env: dict[EnvName, str] = Field(default_factory=dict, description="Container environment.")
    auth: Rows[Literal["key", "none"]] = Field(
        default=("key", "none"), description="Ways to guard the API that this image can do."
    )
    caches: dict[Name, str] = Field(
        default_factory=dict, description="Name → path inside the container, kept per image."
    )
    shm_size: str | None = Field(
        default=None,
        pattern=r"^[0-9]+[kmg]$",
        description="Shared memory; from the same pool as the GPU.",
    )
    drop_page_cache: bool = Field(
        default=True, description="Drop the page cache before each start."
    )
    presets: dict[Name, Utilization] = Field(description="Named utilizations; alone is default.")
    max_utilization: Cap = Field(description="Never above this.")
    memory: Memory = Field(default_factory=lambda: Memory(), description="Estimates.")
    disk_gib: float = Field(gt=0, description="Disk beside the image, GiB.")
    boot: Boot = Field(description="Times and markers.")
    logs: Logs = Field(default_factory=lambda: Logs(), description="Telling lines.")
    names: Rows[Text] = Field(min_length=1, description="Served names; all must be listed.")
    drafts: bool = Field(description="Speculative decoding is on: draft counters must climb.")
    proofs: Rows[Proof] = Field(min_length=1, description="What a node must answer.")
    proof_timeout: float = Field(default=180, gt=0, description="Seconds that one proof may take.")
    wedge: Wedge = Field(default_factory=lambda: Wedge(), description="When it counts as hung.")
    restart: Restart = Field(default_factory=lambda: Restart(), description="Restart cap.")
    fallbacks: dict[Name, Fallback] = Field(default_factory=dict, description="Ways out.")
    rules: Rows[Rule] = Field(default=(), description="What must not be undone.")
    published: Rows[Figures] = Field(default=(), description="Published measurements.")
    conflicts: Rows[Conflict] = Field(default=(), description="Where sources disagree.")
    variants: dict[Name, Variant] = Field(default_factory=dict, description="Other ways.")
    choices: Rows[Choice] = Field(default=(), description="Ours where sources are silent.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        served = self.command.flags.get("served-model-name")
        listed = served if isinstance(served, list) else [served]
        if list(self.names) != listed:
            raise ValueError(f"lists names {list(self.names)}, but served-model-name is {served}")
        for proof in self.proofs:
            if proof.model not in self.names:
                raise ValueError(f"asks {proof.model!r} in proof {proof.name}; not a served name")
        if "alone" not in self.presets:
            raise ValueError("needs a preset named alone, the default")
        high = [name for name, value in self.presets.items() if value > self.max_utilization.value]
        if high:
            raise ValueError(f"has presets above max_utilization: {', '.join(high)}")
        rules = [rule.name for rule in self.rules]
        for name in rules:
            if rules.count(name) > 1:
                raise ValueError(f"has two rules named {name}")
        return self
