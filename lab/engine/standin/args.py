"""vLLM's command line, as far as a stand-in needs it: every flag is kept, few mean something."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class UsageError(Exception):
    """A command line that the real engine would refuse as well."""


@dataclass(frozen=True)
class Arguments:
    """`vllm serve MODEL --flag value …`, with what `--config` adds."""

    model: str
    flags: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str, default: str) -> str:
        """The value of a flag that takes one."""
        values = self.flags.get(name)
        return values[0] if values else default

    def many(self, name: str) -> list[str]:
        """The values of a flag that takes several."""
        return list(self.flags.get(name, []))

    def has(self, name: str) -> bool:
        """Whether the flag was given at all."""
        return name in self.flags

    @property
    def names(self) -> list[str]:
        """What the model is served as; the model's path where no name is given."""
        return self.many("served-model-name") or [self.model]

    def shown(self) -> dict[str, Any]:
        """As the engine logs its arguments, the key masked."""
        shown: dict[str, Any] = {"model_tag": self.model}
        for name, values in self.flags.items():
            key = name.replace("-", "_")
            value: Any = values if len(values) > 1 else values[0] if values else True
            shown[key] = "***" if key == "api_key" else value
        return shown


def parse(argv: Iterable[str]) -> Arguments:
    """Read a command line. Raises UsageError for what is no `serve MODEL`."""
    words = list(argv)
    if words[:1] != ["serve"]:
        raise UsageError(f"vllm: the stand-in only knows `serve`, not {words[:1]}")
    positional: list[str] = []
    flags: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in words[1:]:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            current = flags.setdefault(name.replace("_", "-"), [])
            current.clear()
            if equals:
                current.append(value)
                current = None
        elif current is not None:
            current.append(word)
        else:
            positional.append(word)
    if len(positional) != 1:
        raise UsageError(f"vllm serve: one model is wanted, not {positional}")
    return Arguments(positional[0], _with_config(flags))


def _with_config(flags: dict[str, list[str]]) -> dict[str, list[str]]:
    """Flags of the YAML file that `--config` names stand behind those of the command line."""
    if "config" not in flags:
        return flags
    import yaml  # only in the image, where the hub's client brings it

    path = Path(flags["config"][0])
    if not path.exists():
        raise UsageError(f"vllm serve: the configuration {path} does not exist")
    content = yaml.safe_load(path.read_text()) or {}
    merged = dict(flags)
    for name, value in content.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        merged.setdefault(str(name).replace("_", "-"), [str(v) for v in values])
    return merged
