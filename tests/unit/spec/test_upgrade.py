"""What has moved between two locks, and which pins a recipe has."""

from __future__ import annotations

from sparkfleet.spec.lock import Lock, LockedFile, LockedImage, LockedModel, LockedRecipe
from sparkfleet.spec.upgrade import keys_of, moves


def recipe(
    digest: str = "a", commit: str = "1", weights: str = "c", date: str = ""
) -> LockedRecipe:
    files = (
        LockedFile(path="model.safetensors", size=3_000_000_000, sha256=weights * 64),
        LockedFile(path="config.json", size=10, sha256="d" * 64),
    )
    model = LockedModel(repo="o/m", commit=commit * 40, date=date, files=files)
    image = LockedImage(repository="r/i", tag="t", digest=f"sha256:{digest * 64}")
    return LockedRecipe(image=image, models={"model": model})


def lock(**recipes: LockedRecipe) -> Lock:
    return Lock(recipes=recipes)


def test_nothing_has_moved() -> None:
    assert moves(lock(a=recipe()), lock(a=recipe())) == []


def test_a_tag_that_was_pointed_elsewhere() -> None:
    (move,) = moves(lock(a=recipe()), lock(a=recipe(digest="b")))
    assert (move.key, move.what) == ("a", "image r/i:t")
    assert (move.old, move.new, move.size) == ("a" * 12, "b" * 12, 0)


def test_a_new_commit_is_weighed_by_what_a_host_lacks() -> None:
    before = recipe(date="2026-06-18T09:00:00+00:00")
    words_only = recipe(commit="2", date="2026-07-01T09:00:00+00:00")
    (move,) = moves(lock(a=before), lock(a=words_only))
    assert (move.what, move.size) == ("model o/m", 0)
    assert move.old == f"{'1' * 12} 2026-06-18" and move.new == f"{'2' * 12} 2026-07-01"
    (move,) = moves(lock(a=before), lock(a=recipe(commit="2", weights="e")))
    assert move.size == 3_000_000_000


def test_a_recipe_that_one_of_them_lacks_has_not_moved() -> None:
    assert moves(lock(), lock(a=recipe())) == []
    assert moves(lock(a=recipe()), lock()) == []


def test_the_pins_of_a_recipe_are_those_of_its_variants_and_images_too() -> None:
    names = ["a", "a+fast", "a@r/other:1", "a+fast@r/other:1", "ab", "b"]
    whole = Lock(recipes={name: recipe() for name in names})
    assert keys_of(whole, "a") == names[:4]
    assert list(whole.without(*keys_of(whole, "a")).recipes) == ["ab", "b"]
