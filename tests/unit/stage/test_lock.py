"""The lock's models, and what a host's stamp means against them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sparkfleet.spec.lock import (
    Lock,
    LockedFile,
    LockedModel,
    bytes_to_come,
    is_staged,
    lock_key,
    model_dir,
    verified_files,
)

COMMIT = "a" * 40
MODEL = LockedModel(
    repo="o/m",
    commit=COMMIT,
    date="2026-06-18T09:00:00+00:00",
    files=(
        LockedFile(path="model.safetensors", size=1000, sha256="b" * 64),
        LockedFile(path="config.json", size=10, git_sha1="c" * 40),
    ),
)


def stamp(**changes: Any) -> dict[str, Any]:
    files = {
        "model.safetensors": {"size": 1000, "mtime_ns": 5, "sha256": "b" * 64},
        "config.json": {"size": 10, "mtime_ns": 6, "git_sha1": "c" * 40},
    }
    return {"schema": 1, "repo": "o/m", "commit": COMMIT, "files": files, **changes}


FOUND = {"model.safetensors": [1000, 5], "config.json": [10, 6]}


def test_a_stamp_over_untouched_files_means_staged() -> None:
    assert is_staged(stamp(), FOUND, MODEL)
    assert bytes_to_come(stamp(), FOUND, 0, MODEL) == 0


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (None, FOUND),
        ({}, FOUND),
        (stamp(schema=2), FOUND),
        (stamp(commit="d" * 40), FOUND),
        (stamp(repo="O/m"), FOUND),
        (stamp(files=[]), FOUND),
        (stamp(), {}),
        (stamp(), {**FOUND, "config.json": [10, 7]}),
        (stamp(), {**FOUND, "config.json": [9, 6]}),
    ],
)
def test_anything_else_is_not(said: dict[str, Any] | None, found: dict[str, list[int]]) -> None:
    assert not is_staged(said, found, MODEL)


def test_a_stamp_that_vouches_for_another_hash_does_not_count() -> None:
    files = {**stamp()["files"], "config.json": {"size": 10, "mtime_ns": 6, "git_sha1": "d" * 40}}
    assert verified_files(stamp(files=files), FOUND, MODEL) == {"model.safetensors"}


def test_what_is_still_to_come() -> None:
    assert bytes_to_come(None, {}, 0, MODEL) == 1010
    assert bytes_to_come(None, {}, 400, MODEL) == 610
    assert bytes_to_come(None, {"config.json": [10, 1]}, 0, MODEL) == 1000  # only read again
    assert bytes_to_come(None, {"config.json": [9, 1]}, 0, MODEL) == 1010


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a//b", "a/./b", "", "a\nb", ".sparkfleet-stamp.json"]
)
def test_a_path_that_leaves_its_directory_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        LockedFile(path=path, size=1, sha256="b" * 64)


def test_a_file_has_exactly_one_hash() -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        LockedFile(path="a", size=1)
    with pytest.raises(ValidationError, match="exactly one"):
        LockedFile(path="a", size=1, sha256="b" * 64, git_sha1="c" * 40)


def test_another_form_of_lock_is_refused() -> None:
    with pytest.raises(ValidationError, match="schema is 2"):
        Lock.model_validate({"schema": 2})


def test_names() -> None:
    assert lock_key("r") == "r"
    assert lock_key("r", "tag") == "r@tag"
    assert model_dir("/m", "o/n", COMMIT) == f"/m/o--n/{COMMIT}"
