"""The documents keep up with the code."""

import re
from pathlib import Path

from sparkfleet.spec.gateway import GatewaySpec
from sparkfleet.spec.inventory import HostSpec, ServiceSpec

PROJECT = Path(__file__).resolve().parents[3]


def test_every_key_of_the_inventory_is_explained_and_no_other() -> None:
    text = (PROJECT / "docs/inventory.md").read_text(encoding="utf-8")
    before, _, rest = text.partition("\n## The gateway\n")
    about_gateways, _, after = rest.partition("\n## ")
    keys = set(HostSpec.model_fields) | set(ServiceSpec.model_fields)
    assert explained(before + after) == keys - {"name", "services"}
    assert explained(about_gateways) == set(GatewaySpec.model_fields)


def explained(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))


def test_the_readme_names_no_file_or_target_that_is_not_there() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for path in re.findall(r"\]\(([^)#]+)\)", text):
        assert (PROJECT / path).exists(), path
