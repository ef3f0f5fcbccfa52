"""Runs inside an engine image: which versions of what it holds, and which are below a floor.

    python3 -c "$(cat versions.py)" '{"vllm": "0.19.1", "flashinfer": "0.6.8", "cuda": "12.9"}'

Prints one JSON object: `found`, name to version or null where the image does not say, and `below`,
the names under their floor. Nothing heavy is imported: it takes a second, not ten.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
from importlib import metadata
from pathlib import Path

from packaging.version import InvalidVersion, Version  # vLLM itself needs it

DISTRIBUTIONS = {"vllm": ("vllm",), "flashinfer": ("flashinfer-python", "flashinfer")}
"""What a package may be called where it was installed from."""


def installed(name: str) -> str | None:
    """Version of an installed distribution."""
    for distribution in DISTRIBUTIONS.get(name, (name,)):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def cuda() -> str | None:
    """The CUDA that PyTorch, and so the engine, was built for; else what the image's maker set."""
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        said = runpy.run_path(str(Path(spec.origin).with_name("version.py"))).get("cuda")
        if said:
            return str(said)
    return os.environ.get("CUDA_VERSION")


def below(found: str | None, floor: str) -> bool:
    """Whether a version is older than the floor; one that can't be read is not said to be."""
    try:
        return found is not None and Version(found) < Version(floor)
    except InvalidVersion:
        return False


def main(floors: dict[str, str]) -> None:
    """Print the answer."""
    found = {name: cuda() if name == "cuda" else installed(name) for name in floors}
    under = [name for name, floor in floors.items() if below(found[name], floor)]
    print(json.dumps({"found": found, "below": under}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
