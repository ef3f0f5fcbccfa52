"""What the documents show is taken from them and tried, so that it can't go stale."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from sparkfleet.spec.catalog import load_catalog
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.resolve import resolve
from tests.golden import pins

PROJECT = Path(__file__).resolve().parents[1]
RECIPES = PROJECT / "docs/recipes.md"


def example_recipe(directory: Path) -> str:
    """Write the worked example as step 2 of the document says; gives its name."""
    text = RECIPES.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (name,) = set(re.findall(r"mine/recipes/([\w-]+)\.yaml", text))
    path = directory / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(block, encoding="utf-8")
    return str(name)


def example_plan() -> tuple[str, ServicePlan]:
    """The worked example, resolved with made-up pins: its name and its plan."""
    with tempfile.TemporaryDirectory() as directory:
        name = example_recipe(Path(directory))
        catalog = load_catalog(PROJECT, directory)
    lock = pins(name, catalog.recipes[name])
    return name, resolve(parse_host("spark", {"recipe": name}), catalog, lock).services[0]
