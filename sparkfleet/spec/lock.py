"""What `recipes.lock` says: the digest, the commits and every file that a recipe means.

Pure. `sparkfleet.locking` reads and writes the file, `sparkfleet.hub` asks the hub for its content.
After the first deploy no moving name (a tag, a branch) is resolved again: the lock is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from sparkfleet.spec.base import Model, Rows
from sparkfleet.spec.image import Digest, ImageRef
from sparkfleet.spec.recipe import ModelFiles

#: Version of the lock's form; a file of another one is refused, not guessed at.
SCHEMA = 1

Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha1 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class LockedFile(Model):
    """One file of a repository at a commit, with the hash that the hub gives for it."""

    path: str = Field(description="Path inside the repository, with forward slashes.")
    size: int = Field(ge=0, description="Bytes.")
    sha256: Sha256 | None = Field(
        default=None, description="SHA-256 of the content: files kept in LFS."
    )
    git_sha1: Sha1 | None = Field(
        default=None, description="Git blob id: files kept in git itself."
    )

    @model_validator(mode="after")
    def _one_hash_and_a_safe_path(self) -> LockedFile:
        if (self.sha256 is None) == (self.git_sha1 is None):
            raise ValueError(f"{self.path}: exactly one of sha256 and git_sha1 must stand here")
        # The path is joined to a directory on the host and opened for writing there.
        parts = self.path.split("/")
        odd = self.path.startswith("/") or "\0" in self.path or "\n" in self.path
        if odd or any(part in ("", ".", "..") for part in parts) or parts[0].startswith(".spark"):
            raise ValueError(f"{self.path!r} is not a path that may be written on a host")
        return self

    @property
    def digest(self) -> str:
        """The hash with its kind, such as `sha256:…`; what a stamp on a host is compared with."""
        return f"sha256:{self.sha256}" if self.sha256 else f"git-sha1:{self.git_sha1}"


class LockedModel(Model):
    """One repository at one commit, with the files of it that a recipe needs."""

    repo: str = Field(description="Repository id on the hub; case counts.")
    revision: str = Field(default="main", description="What was asked for: branch, tag, commit.")
    include: Rows[str] | None = Field(default=None, description="Globs asked for; null: all files.")
    exclude: Rows[str] = Field(default=(), description="Globs left out.")
    commit: Commit
    date: str = Field(description="When the commit was made, ISO 8601, UTC; empty: unsaid.")
    private: bool = Field(
        default=False, description="The hub wants a token for it: private or gated."
    )
    files: Rows[LockedFile]

    @model_validator(mode="after")
    def _paths_once(self) -> LockedModel:
        paths = [file.path for file in self.files]
        if len(set(paths)) != len(paths):
            raise ValueError(f"{self.repo}: a file is listed twice")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


class LockedImage(Model):
    """The engine image. The digest is the identity; the tag is for people."""

    repository: str
    tag: str | None = None
    digest: Digest | None = Field(
        default=None, description="None until a host's registry has said it."
    )
    version: str | None = Field(
        default=None, description="The engine's own version, for the proof."
    )


class LockedRecipe(Model):
    """Everything that is pinned for one recipe."""

    image: LockedImage
    models: dict[str, LockedModel] = Field(description="Role, such as `drafter`, to repository.")

    def with_digest(self, digest: str, version: str | None = None) -> LockedRecipe:
        """A copy whose image is pinned to what a registry said for its tag."""
        image = LockedImage(
            repository=self.image.repository,
            tag=self.image.tag,
            digest=digest,
            version=version or self.image.version,
        )
        return self.model_copy(update={"image": image})


class Lock(Model):
    """The whole lock file."""

    model_config = ConfigDict(populate_by_name=True)

    version: int = Field(default=SCHEMA, alias="schema")
    recipes: dict[str, LockedRecipe] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_form(self) -> Lock:
        if self.version != SCHEMA:
            raise ValueError(f"schema is {self.version}, and this sparkfleet reads {SCHEMA}")
        return self

    def with_recipe(self, key: str, recipe: LockedRecipe) -> Lock:
        """A copy in which `key` means `recipe`."""
        return self.model_copy(update={"recipes": {**self.recipes, key: recipe}})

    def without(self, *keys: str) -> Lock:
        """A copy in which `keys` are not pinned."""
        left = {key: recipe for key, recipe in self.recipes.items() if key not in keys}
        return self.model_copy(update={"recipes": left})


def lock_key(recipe: str, image: str | None = None) -> str:
    """The name under which a service's pins stand: the recipe, and its own image if it has one."""
    return recipe if image is None else f"{recipe}@{image}"


def stale(
    locked: LockedRecipe, image: ImageRef, models: Mapping[str, ModelFiles]
) -> tuple[str, ...]:
    """Why pins no longer answer what recipe and inventory ask for; empty while they do.

    Moving names do not count: a tag that was re-pointed or a branch that went on is the reason for
    a lock, not against it. Another repository, tag, revision or set of files is another question.
    """
    reasons = []
    asked, pinned = (image.repository, image.tag), (locked.image.repository, locked.image.tag)
    if asked != pinned:
        reasons.append(f"the image is {asked[0]}:{asked[1]} now, pinned is {pinned[0]}:{pinned[1]}")
    for role in sorted({*models, *locked.models}):
        want, have = models.get(role), locked.models.get(role)
        if want is None or have is None:
            reasons.append(f"the {role} is {'not asked for any more' if have else 'not pinned'}")
        elif (want.repo, want.include, want.exclude) != (have.repo, have.include, have.exclude):
            reasons.append(f"the {role} is {want.repo} now, or other files of it than were pinned")
        elif want.revision not in (have.revision, have.commit):
            reasons.append(f"the {role} is at {want.revision} now, pinned was {have.revision}")
        elif too_old(want, have):
            reasons.append(f"the {role} pinned is of {have.date[:10]}, older than is allowed")
    return tuple(reasons)


def too_old(want: ModelFiles, have: LockedModel) -> bool:
    """Whether the pinned commit is older than the recipe allows, or of no known date."""
    return want.not_before is not None and have.date[:10] < want.not_before.isoformat()


def model_dir(models_dir: str, repo: str, commit: str) -> str:
    """Where the files of a repository at a commit lie on a host."""
    return str(PurePosixPath(models_dir) / repo.replace("/", "--") / commit)


def verified_files(
    stamp: Mapping[str, Any] | None, found: Mapping[str, Sequence[int]], model: LockedModel
) -> set[str]:
    """Paths that a host holds, verified and untouched since.

    `stamp` is the host's `.sparkfleet-stamp.json`, None where there is none. `found` gives size in
    bytes and mtime in nanoseconds of each file that is there. A file counts when the stamp names
    the lock's hash for it and neither size nor mtime has changed since it was verified.
    """
    if not isinstance(stamp, Mapping) or stamp.get("schema") != 1:
        return set()
    if stamp.get("repo") != model.repo or stamp.get("commit") != model.commit:
        return set()
    entries = stamp.get("files")
    if not isinstance(entries, Mapping):
        return set()
    good = set()
    for file in model.files:
        entry, have = entries.get(file.path), found.get(file.path)
        if not isinstance(entry, Mapping) or have is None:
            continue
        said = (entry.get("size"), entry.get("mtime_ns"))
        same_hash = (entry.get("sha256"), entry.get("git_sha1")) == (file.sha256, file.git_sha1)
        if same_hash and said == tuple(have) and said[0] == file.size:
            good.add(file.path)
    return good


def is_staged(
    stamp: Mapping[str, Any] | None, found: Mapping[str, Sequence[int]], model: LockedModel
) -> bool:
    """Whether a host holds every file of `model`, verified: then there is nothing to fetch."""
    return len(verified_files(stamp, found, model)) == len(model.files)


def bytes_to_come(
    stamp: Mapping[str, Any] | None,
    found: Mapping[str, Sequence[int]],
    partial: int,
    model: LockedModel,
) -> int:
    """Bytes by which the host's models directory will still grow for `model`.

    `partial` is what lies there already of unfinished downloads, in bytes. A file of the right size
    that no stamp vouches for is read again, not fetched again, unless it proves to be damaged.
    """
    verified = verified_files(stamp, found, model)
    missing = sum(
        file.size
        for file in model.files
        if file.path not in verified and (found.get(file.path) or [-1])[0] != file.size
    )
    return max(0, missing - partial)
