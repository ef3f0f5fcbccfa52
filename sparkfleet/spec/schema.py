"""JSON schemas of the YAML files, for editors: `python -m sparkfleet.spec.schema recipe`."""

from __future__ import annotations

import json
import sys
from typing import Any

from sparkfleet.spec.base import Model
from sparkfleet.spec.catalog import Common
from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.inventory import HostSpec, ServiceSpec
from sparkfleet.spec.recipe import Recipe

KINDS: dict[str, type[Model]] = {
    "recipe": Recipe,
    "common": Common,
    "hardware": HardwareProfile,
    "host": HostSpec,
    "service": ServiceSpec,
}


def schema(kind: str) -> dict[str, Any]:
    """The JSON schema of one kind of file or data; KeyError for an unknown kind."""
    found = KINDS[kind].model_json_schema()
    if kind == "hardware":  # a file that inherits may leave out everything that its parent says
        found["anyOf"] = [{"required": found.pop("required")}, {"required": ["name", "inherits"]}]
        found["properties"].pop("lineage")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def main(arguments: list[str]) -> int:
    """Print the schema of the named kind; 2 and a sentence for anything else."""
    if len(arguments) != 1 or arguments[0] not in KINDS:
        print(f"Say which schema: {', '.join(KINDS)}.", file=sys.stderr)
        return 2
    print(json.dumps(schema(arguments[0]), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
