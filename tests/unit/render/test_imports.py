"""Imports go one way (docs/architecture.md); what runs elsewhere needs nothing but Python."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "sparkfleet"

MAY_IMPORT = {
    "spec": {"spec"},
    "facts": {"facts", "spec"},
    "checks": {"checks", "facts", "spec"},
    "node": {"node"},
    "engine": set(),
}
"""Part → parts of ours that it may import."""

STANDARD_LIBRARY_ONLY = ("node", "engine")
IN_THE_ENGINE_IMAGE = {"huggingface_hub", "packaging"}
"""What download.py and versions.py may import besides: they run in the engine image, which carries
it."""


def imports(file: Path) -> set[str]:
    """Modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from sparkfleet import escape` names a part in its second half.
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module in ("sparkfleet", "sparkfleet.node") else {node.module}
    return found


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    files = sorted((PACKAGE / part).glob("*.py"))
    assert files
    for file in files:
        ours = {name.split(".")[1] for name in imports(file) if name.startswith("sparkfleet.")}
        assert ours <= MAY_IMPORT[part], f"{file.name} imports {ours - MAY_IMPORT[part]}"


@pytest.mark.parametrize("part", STANDARD_LIBRARY_ONLY)
def test_what_runs_on_a_spark_needs_only_the_standard_library(part: str) -> None:
    allowed = sys.stdlib_module_names | {"sparkfleet"} | IN_THE_ENGINE_IMAGE
    for file in sorted((PACKAGE / part).glob("*.py")):
        foreign = {name.split(".")[0] for name in imports(file)} - allowed
        assert not foreign, f"{file.name} imports {foreign}"


def test_the_product_does_not_know_the_lab() -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        assert not {name for name in imports(file) if name.split(".")[0] == "lab"}, file
