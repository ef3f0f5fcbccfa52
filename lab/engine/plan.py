"""What the lab's engine images are made of, as data. Change a line here and they are built anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE / "pins"

PYTHON = "3.11"
SUITE = "bookworm"
"""Debian 12: the release whose own Python is 3.11."""
PACKAGES = "python3,libnuma1,libgomp1,curl,ca-certificates"
"""libnuma1 and libgomp1 for the engine, curl for downloads that resume."""
EXCLUDED = "/usr/share/{man,doc,locale,info,lintian,bug,zoneinfo}/*"

VERSIONS = ("0.31.0", "0.32.0")
"""Two real engines on one torch: the older is what the fleet runs, the newer what it rolls to."""

TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""The public package index has no `+cpu` build; this one has, and is asked only then."""

MTIME = 1767225600
"""2026-01-01, the time of every file in every layer: same content, same digest."""


REVISION = 1
"""Raise it with a change of the code that builds trees: they are known by what defines them."""


@dataclass(frozen=True)
class Unwanted:
    """Files left out of the site-packages, as a glob from there."""

    glob: str
    why: str


UNWANTED = (
    Unwanted("torch/test", "86 MB of torch's compiled tests"),
    Unwanted("torch/include", "headers; --enforce-eager compiles nothing"),
    Unwanted("torch/bin/[!t]*", "compilers of protocol buffers"),
    Unwanted("torch/bin/test_*", "tests again"),
    Unwanted("torch/lib/libtorchbind_test.so", "tests again"),
    Unwanted("mistral_common/data/*", "another family's tokenizers, 37 MB"),
    Unwanted("numpy/*/tests", "tests"),
    Unwanted("bin", "launchers for another interpreter"),
    Unwanted("share", "manual pages"),
)
"""And by not standing in the pins: triton (1 GB, no GPU), torchvision, torchaudio and torchcodec
(their builds do not match this torch), numba and llvmlite (180 MB, only n-gram drafting)."""


@dataclass(frozen=True)
class Image:
    """One tag: its layers from the bottom, and what its configuration adds."""

    repository: str
    tag: str
    layers: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`sparkfleet/engine:0.32.0`, to be set behind a registry."""
        return f"{self.repository}:{self.tag}"


ENGINE = "sparkfleet/engine"
STANDIN = "sparkfleet/standin"
FAULTS = (
    *("crash", "exit0", "never-ready", "mute", "missing-name", "still-counters"),
    *("forbidden-log", "wrong-answer", "wrong-version", "slow"),
    *("dead", "dies", "dies-0", "wedges"),
)
"""Faults of the stand-in engine that have a tag of their own; see standin/README.md."""


def _standin(tag: str, **env: str) -> Image:
    return Image(STANDIN, tag, ("base", "standin"), env)


IMAGES = (
    *(Image(ENGINE, version, ("base", "site", f"engine-{version}")) for version in VERSIONS),
    _standin("1", SPARKFLEET_STANDIN_VERSION="1.0.0"),
    _standin("2", SPARKFLEET_STANDIN_VERSION="2.0.0"),
    *(
        _standin(fault, SPARKFLEET_STANDIN_VERSION="2.0.0", SPARKFLEET_STANDIN_FAULT=fault)
        for fault in FAULTS
    ),
)
