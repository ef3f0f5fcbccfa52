"""Engine images: which one a recipe is bound to, and how a reference is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field

from sparkfleet.spec.base import EnvName, FlagName, FlagValue, Model, Rows, Text
from sparkfleet.spec.errors import SpecError

DIGEST = r"^sha256:[0-9a-f]{64}$"
TAG = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"

IMAGE_FLOORS = "image-floors"
"""The rule that the image meets the recipe's floors; a host asks the image itself."""

Digest = Annotated[str, Field(pattern=DIGEST)]
Tag = Annotated[str, Field(pattern=TAG)]
Repository = Annotated[str, Field(pattern=r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+$")]
"""Registry host, perhaps a port, and path, all written out; no tag."""


def _is_version(value: str) -> str:
    try:
        Version(value)
    except InvalidVersion:
        raise ValueError(
            "must be a version such as 0.6.8, which others can be compared with"
        ) from (None)
    return value


VersionText = Annotated[str, AfterValidator(_is_version)]
"""A version that can be ordered (PEP 440)."""


class ProvenImage(Model):
    """Another image of the same repository that the recipe is known to work with."""

    tag: Tag | None = Field(default=None, description="Tag; a tag or a digest must be given.")
    digest: Digest | None = Field(
        default=None, description="Digest of the manifest list, sha256:…."
    )
    version: Text = Field(description="What the engine's /version answers on this image.")
    flags: dict[FlagName, FlagValue | None] = Field(
        default_factory=dict,
        description="What this version wants said otherwise; null: it has no such flag.",
    )
    env: dict[EnvName, str | None] = Field(
        default_factory=dict, description="Environment that goes with it; null drops."
    )
    source: Text | None = Field(default=None, description="Where it was proven.")


class EngineImage(Model):
    """The image that a recipe is bound to."""

    repository: Repository = Field(description="Registry and path, without tag or digest.")
    tag: Tag = Field(description="The tag, for people and for the first resolution.")
    digest: Digest | None = Field(
        default=None, description="Digest where it is known; else locked later."
    )
    version: Text | None = Field(description="What /version answers; null: not to be checked.")
    entrypoint: Rows[str] | None = Field(
        default=None, description="Replaces the image's entry point; null keeps it."
    )
    proven: Rows[ProvenImage] = Field(
        default=(), description="Other images accepted without an override."
    )
    rollback_tag: Tag | None = Field(default=None, description="Tag to go back to by hand.")
    floors: dict[Literal["vllm", "flashinfer", "cuda"], VersionText] = Field(
        default_factory=dict,
        description="Lowest versions of what is inside; asked of the staged image itself.",
    )
    source: Text = Field(description="Where tag, digest and version were read.")


class ReplacementImage(Model):
    """An engine image that a hardware profile puts in the place of the recipe's."""

    repository: Repository = Field(description="Registry and path of the replacement.")
    tag: Tag = Field(description="Its tag.")
    digest: Digest | None = Field(default=None, description="Its digest, where known.")
    version: Text | None = Field(default=None, description="What /version answers on it.")


@dataclass(frozen=True, slots=True)
class ImageRef:
    """The image that one service runs."""

    repository: str
    tag: str | None
    digest: str | None
    """None until the lock has resolved the tag."""
    version: str | None
    """None: not known, so /version is not compared."""

    @property
    def pinned(self) -> str:
        """`repository@digest`, the only form that is ever started; ValueError when unresolved."""
        if self.digest is None:
            raise ValueError(f"The image {self.reference} has no digest yet; lock it first.")
        return f"{self.repository}@{self.digest}"

    @property
    def reference(self) -> str:
        """The most exact form known: by digest, else by tag."""
        return (
            f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"
        )


def parse_image(text: str, repository: str) -> ImageRef:
    """Read an owner's `image`: a tag, `@sha256:…`, or a full reference; version still unknown.

    Raises SpecError (without host; the caller adds it) when it is none of these.
    """
    if re.fullmatch(TAG.strip("^$"), text):
        return ImageRef(repository, text, None, None)
    full, _, digest = text.partition("@")
    last = full.rpartition("/")[2]
    tag = last.partition(":")[2] if ":" in last and "/" in full else ""
    name = full.removesuffix(f":{tag}") if tag else full
    if digest and not re.fullmatch(DIGEST.strip("^$"), digest):
        raise SpecError(f'"{digest}" is not a digest; one looks like sha256: and 64 hex digits.')
    if (digest or tag) and (name == "" or "/" in name):
        return ImageRef(name or repository, tag or None, digest or None, None)
    raise SpecError(
        f'"{text}" names no image: write a tag, @sha256:… of the recipe\'s repository, '
        "or a full reference such as ghcr.io/owner/name:tag."
    )
