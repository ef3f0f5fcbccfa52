"""Which releases and images are one too many."""

from __future__ import annotations

import pytest

from sparkfleet.node.docker import Image
from sparkfleet.node.prune import surplus, told, unused

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("needed", "keep", "gone"),
    [
        ({"new", "old"}, 2, ["mid", "first"]),
        ({"new", "mid"}, 3, ["first"]),
        ({"new", "first"}, 1, ["mid", "old"]),
        ({"new"}, 9, []),
    ],
)
def test_the_oldest_go_and_never_what_is_needed(
    needed: set[str], keep: int, gone: list[str]
) -> None:
    names = [("first", 1.0), ("old", 2.0), ("mid", 3.0), ("new", 4.0)]
    assert set(surplus(names, needed, keep)) == set(gone)


def image(*tags: str, digest: str = DIGEST, id: str = "sha256:1") -> Image:
    return Image(id, tags, (f"reg/engine@{digest}",), 10)


OURS = "reg/engine:sparkfleet-abababababab"


@pytest.mark.parametrize(
    ("found", "needed"),
    [
        (image(OURS, "reg/engine:0.31"), set()),
        (image("reg/engine:0.31"), set()),
        (image(), set()),
        (image(OURS), {DIGEST}),
        (image(OURS), {"sha256:1"}),
        (image("reg/engine:sparkfleet-000000000000"), set()),
    ],
    ids=["also theirs", "theirs", "untagged", "of a release", "of a container", "another digest"],
)
def test_an_image_that_is_anybody_elses_or_needed_stays(found: Image, needed: set[str]) -> None:
    assert unused([found], needed) == []
    assert [old.tag for old in unused([image(OURS)], set())] == [OURS]


def test_what_went_is_a_sentence() -> None:
    gone = {"releases": 1, "images": 2, "bytes": 36_000_000_000}
    assert told(gone) == ("Cleared away: 1 old release and 2 images that only they used (36.0 GB).")
