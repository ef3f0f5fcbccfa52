"""A recipe: everything that is published about serving one model, with a source for each figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from sparkfleet.spec.base import (
    EnvName,
    FlagName,
    FlagPath,
    FlagValue,
    Misfit,
    Model,
    Name,
    Rows,
    Sourced,
    Text,
    Utilization,
)
from sparkfleet.spec.image import EngineImage
from sparkfleet.spec.logs import Boot, LogLine, Logs
from sparkfleet.spec.proof import Proof
from sparkfleet.spec.published import Choice, Conflict, Figures, Risk
from sparkfleet.spec.rules import Rule
from sparkfleet.spec.weights import ModelFiles as ModelFiles


class Command(Model):
    """The engine's command line in the published order."""

    positional: Rows[str] = Field(
        default=(), description="Words before the flags, such as serve /model."
    )
    flags: dict[FlagName, FlagValue] = Field(description="Flags in order, without dashes.")
    environment: dict[FlagPath, EnvName] = Field(
        default_factory=dict,
        description="For an image driven by its environment: flag (or flag.key) → variable that "
        "carries it. When set, no flag reaches the command line; those not named are the image's.",
    )
    extra: EnvName | None = Field(
        default=None,
        description="For such an image: variable whose words it appends to the command line; "
        "carries our additions.",
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


class Fallback(Sourced):
    """A known way out of trouble that costs something; the owner names it, it is shown."""

    flags: dict[FlagName, FlagValue | None] = Field(
        description="Set over the recipe's; null drops."
    )
    cost: Text = Field(description="What it costs, for reports.")
    lifts: Rows[Name] = Field(default=(), description="Rules that it lifts.")


class Preset(Model):
    """A named size: a utilization, and flags that go with it."""

    utilization: Utilization = Field(description="Fraction of MemTotal.")
    flags: dict[FlagName, FlagValue | None] = Field(default_factory=dict, description="Set over.")
    note: Text | None = Field(default=None, description="What it is for.")


Presets = dict[Name, Utilization | Preset]


class Variant(Sourced):
    """Another way to serve the same recipe: only what differs."""

    extends: Name | None = Field(default=None, description="Another variant to start from.")
    title: Text = Field(description="A few words.")
    flags: dict[FlagName, FlagValue | None] = Field(default_factory=dict, description="null drops.")
    env: dict[EnvName, str | None] = Field(default_factory=dict, description="null drops.")
    models: dict[str, ModelFiles] = Field(default_factory=dict, description="Added by role.")
    presets: Presets = Field(default_factory=dict, description="Set over.")
    required_logs: Rows[LogLine] = Field(default=(), description="Required beside the recipe's.")
    drafts: bool | None = Field(default=None, description="Whether draft counters must climb.")


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
    sources_of: dict[Text, Text] = Field(
        default_factory=dict,
        description="Key of this file → where its figures were read, where no source stands by.",
    )
    responsibility: Text | None = Field(
        default=None, description="The publisher's word, shown at lock."
    )
    risks: Rows[Risk] = Field(default=(), description="Known faults, shown at lock.")
    hardware: Rows[Name] = Field(min_length=1, description="Profiles it is published for.")
    image: EngineImage = Field(description="The engine image.")
    models: dict[str, ModelFiles] = Field(min_length=1, description="By role: model, drafter, ….")
    container: Name = Field(description="Container name, as published.")
    command: Command = Field(description="The published command line.")
    common_additions: Rows[Name] = Field(
        default=(), description="Names of additions in _common.yaml, put before this recipe's own."
    )
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
    presets: Presets = Field(description="Named utilizations; alone is the default.")
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
            raise Misfit(f"differ from served-model-name, which is {served}", "names")
        for index, proof in enumerate(self.proofs):
            if proof.model not in self.names:
                raise Misfit(f"is {proof.model}, not a served name", "proofs", index, "model")
        if "alone" not in self.presets:
            raise Misfit("lack a preset named alone, the default", "presets")
        for name in self.presets:
            if self.preset(name).utilization > self.max_utilization.value:
                raise Misfit("is above max_utilization", "presets", name)
        rules = [rule.name for rule in self.rules]
        for index, name in enumerate(rules):
            if name in rules[:index]:
                raise Misfit(f"{name} names another rule already", "rules", index, "name")
        for key in self.sources_of:
            if _under(self, key.split(".")) is None:
                raise Misfit("names nothing that stands in this file", "sources_of", key)
        for index, choice in enumerate(self.choices):
            said = _plain(_under(self, choice.key.split(".")))
            if said != choice.value:
                where = ("choices", index, "value")
                raise Misfit(f"is not what {choice.key} says here, which is {said}", *where)
        return self

    def preset(self, name: str) -> Preset:
        """The preset of that name; KeyError when there is none."""
        value = self.presets[name]
        return value if isinstance(value, Preset) else Preset(utilization=value)


def _under(value: object, path: list[str]) -> object:
    """What stands at a path of keys; None where nothing does."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return value


def _plain(value: object) -> object:
    """A value as a recipe's YAML would give it: lists for tuples, mappings for models."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 300 is read as 300.0
    return list(value) if isinstance(value, tuple) else value
