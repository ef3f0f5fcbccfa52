"""Reading and writing `recipes.lock`: a file that the owner commits and reviews."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.yamlfile import Loader

HEADER = """\
# Written by sparkfleet, to be committed: which image, commits and files the recipes mean.
# No deploy looks up a tag or a branch that stands here. To upgrade, lock anew and review the diff.
"""


class _FlowMap(dict[str, Any]):
    """A mapping that stands on one line, so that a changed file is one changed line."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper with lists indented under their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(
    _FlowMap,
    lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True),
)


def read_lock(path: str | Path) -> Lock:
    """The lock at `path`; an empty one where there is no file.

    Raises SpecError when the file can't be read as a lock: by a merge conflict, say.
    """
    path = Path(path)
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except FileNotFoundError:
        return Lock()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "strerror", None) or error
        raise _unreadable(path, f"{path}{line}: {reason}") from None
    if raw is None:
        return Lock()
    if not isinstance(raw, dict):
        raise _unreadable(path, f"{path} holds something else than a lock.")
    try:
        return Lock.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = " → ".join(str(part) for part in first["loc"]) or "the top"
        raise _unreadable(path, f"{path}, at {where}: {first['msg']}") from None


def _unreadable(path: Path, what: str) -> SpecError:
    return SpecError(
        f"The lock can't be read. {what}. Take the committed file back (git checkout {path.name}), "
        "or delete it to pin everything anew, which may mean newer weights.",
        file=str(path),
    )


def format_lock(lock: Lock) -> str:
    """The lock as text: sorted, one line a file, so that a diff shows just what changed."""
    tree: dict[str, Any] = {"schema": lock.version, "recipes": {}}
    for name, recipe in sorted(lock.recipes.items()):
        entry = recipe.model_dump(mode="json", exclude_none=True)
        entry["models"] = {
            role: {
                **{key: value for key, value in model.items() if key == "repo" or value != []},
                "files": [
                    _FlowMap(file) for file in sorted(model["files"], key=lambda f: str(f["path"]))
                ],
            }
            for role, model in sorted(entry["models"].items())
        }
        tree["recipes"][name] = entry
    return HEADER + yaml.dump(
        tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000
    )


def write_lock(path: str | Path, lock: Lock) -> bool:
    """Put the lock in place, whole or not at all. False, and the file untouched, when it says
    the same already."""
    path = Path(path)
    text = format_lock(lock)
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except (OSError, UnicodeDecodeError):
        pass
    fd, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105 - named for what it promises: atomic
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    return True
