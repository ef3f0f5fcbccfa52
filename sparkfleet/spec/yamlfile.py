"""Reads a YAML file and remembers the line of each key, so that errors can point at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sparkfleet.spec.errors import SpecError

Place = tuple[str | int, ...]

#: libyaml's reader where PyYAML was built with it, as its wheels are: ten times as fast, and a
#: catalog is read in every run.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """One file: its data (always a mapping) and where in the file each part of it stands."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[Place, int]

    def line(self, place: Place) -> int | None:
        """Line of the nearest thing at or above a place, counted from 1."""
        for length in range(len(place), 0, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return None

    def at(self, place: Place = ()) -> str:
        """`recipes/x.yaml, line 12`: how messages name a place of this file."""
        name = f"{self.path.parent.name}/{self.path.name}"
        line = self.line(place)
        return f"{name}, line {line}" if line else name

    def error(self, place: Place, sentence: str) -> SpecError:
        """A SpecError that begins with the place."""
        key = ".".join(str(part) for part in place) or None
        return SpecError(f"{self.at(place)}: {sentence}", file=str(self.path), key=key)


def read_yaml(path: Path) -> Document:
    """Read one YAML mapping.

    Raises SpecError, with the line, for a file that can't be read, is not YAML, is not a mapping,
    or says one key twice (which YAML readers let pass, keeping the last).
    """
    name = f"{path.parent.name}/{path.name}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError(f"{name} can't be read: {why}. Path: {path}.", file=str(path)) from None
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        if node is not None:
            _mark(node, (), lines, name, path)
        data = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}, line {mark.line + 1}" if mark else name
        raise SpecError(
            f"{where}: this is not YAML: {error.problem or error.context}. Look at the "
            "indentation, quotes and colons of that line and the one before.",
            file=str(path),
        ) from None
    except SpecError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"{name}: this is not YAML: {error}.", file=str(path)) from None
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        raise SpecError(f"{name} must hold a mapping of keys to values.", file=str(path))
    return Document(path, data, lines)


def _mark(node: yaml.Node, place: Place, lines: dict[Place, int], name: str, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in seen:
                raise SpecError(
                    f'{name}, line {line}: the key "{key}" stands here a second time, first in '
                    f"line {seen[key]}; only one would count. Remove one of them.",
                    file=str(path),
                    key=".".join(str(part) for part in (*place, key)),
                )
            seen[key] = line
            lines[(*place, key)] = line
            _mark(value_node, (*place, key), lines, name, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*place, index)] = item.start_mark.line + 1
            _mark(item, (*place, index), lines, name, path)
