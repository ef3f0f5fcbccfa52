"""Pinning: the real hub client against a hub on loopback."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.hub import Hub
from sparkfleet.hub_errors import HubError
from sparkfleet.locking import format_lock, read_lock, write_lock
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.lock import Lock, LockedImage, LockedRecipe, stale
from sparkfleet.spec.recipe import ModelFiles

from .hub_server import COMMIT, HubServer, Repo, forever, status

FILES = {"model.safetensors": b"w" * 5000, "config.json": b"{}", "README.md": b"hello"}


def want(repo: str = "Owner/Model", **more: Any) -> ModelFiles:
    return ModelFiles.model_validate({"repo": repo, "mount": "/model", "source": "here", **more})


def asker(hub: HubServer, token: str | None = None) -> Hub:
    return Hub(endpoint=hub.url, token=lambda: token, sleep=lambda _: None)


def refusal(hub: HubServer, files: ModelFiles, token: str | None = None) -> HubError:
    with pytest.raises(HubError) as caught:
        asker(hub, token).lock_model("model", files)
    assert files.repo in str(caught.value)
    return caught.value


def test_commit_date_and_files_are_pinned(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES)
    model = asker(hub, "t0ken").lock_model("model", want(exclude=["*.md"]))
    assert (model.commit, model.date[:10], model.private) == (COMMIT, "2026-06-18", False)
    assert [(f.path, f.size, bool(f.sha256), bool(f.git_sha1)) for f in model.files] == [
        ("config.json", 2, False, True),
        ("model.safetensors", 5000, True, False),
    ]
    assert all(auth is None for *_, auth in hub.requests), "a token went where none was needed"


def test_globs_choose(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES)
    model = asker(hub).lock_model("model", want(include=["*.json"]))
    assert [file.path for file in model.files] == ["config.json"]
    error = refusal(hub, want(include=["*.gguf"]))
    assert error.code == "no-files" and "*.gguf" in str(error)


def test_a_commit_is_asked_for_as_such(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES)
    assert asker(hub).lock_model("model", want(revision=COMMIT)).commit == COMMIT
    assert refusal(hub, want(revision="v9")).code == "hub-404-revision"


def test_a_private_repository_is_asked_for_again_with_the_token(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES, private=True, token="t0ken")
    assert asker(hub, "t0ken").lock_model("model", want()).private
    assert "without a token" in str(refusal(hub, want()))
    assert refusal(hub, want(), token="stale").code == "hub-401"


def test_a_gated_repository_is_refused_before_any_host_is_asked(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES, gated="auto", token="t0ken")
    error = refusal(hub, want())
    assert error.code == "hub-403" and "Accept its terms" in str(error)
    assert asker(hub, "t0ken").lock_model("model", want()).private


@pytest.mark.parametrize(
    "answer", [404, 401]
)  # to a stranger the hub says 401 of what is not there
@pytest.mark.parametrize("token", [None, "t0ken"])
def test_a_wrong_case_is_named(hub: HubServer, answer: int, token: str | None) -> None:
    hub.repos["Owner/Model"] = Repo(FILES)
    hub.faults["owner/model/revision/main"] = [forever(status(answer, X_Error_Code="RepoNotFound"))]
    error = refusal(hub, want("owner/model"), token)
    assert error.code == f"hub-{answer}" and "The hub has Owner/Model" in str(error)


@pytest.mark.parametrize(
    ("code", "expected"), [(429, "hub-429"), (500, "hub-5xx"), (503, "hub-5xx"), (403, "hub-403")]
)
def test_refusals_have_codes(hub: HubServer, code: int, expected: str) -> None:
    hub.repos["Owner/Model"] = Repo(FILES)
    hub.faults["/revision/main"] = [forever(status(code))]
    assert refusal(hub, want()).code == expected


def test_an_overloaded_hub_is_asked_again_after_the_time_it_names(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES)
    hub.faults["/revision/main"] = [status(429, Retry_After="7"), status(503)]
    slept: list[float] = []
    asked = Hub(endpoint=hub.url, token=lambda: None, sleep=slept.append)
    assert asked.lock_model("model", want()).commit == COMMIT
    assert slept == [7.0, 3.0]


def test_nothing_listens(hub: HubServer) -> None:
    hub.close()
    error = refusal(hub, want())
    assert error.code == "unreachable" and hub.url in str(error)


@pytest.mark.parametrize("commits", [True, False])
def test_broken_old_weights_are_refused(hub: HubServer, commits: bool) -> None:
    hub.repos["Owner/Model"] = Repo(FILES, date="2026-06-17T23:00:00.000Z", commits=commits)
    floor = datetime.date(2026, 6, 18)
    error = refusal(hub, want(not_before=floor))
    assert error.code == "too-old" and "2026-06-17" in str(error) and "2026-06-18" in str(error)
    hub.repos["Owner/Model"].date = "2026-06-18T00:00:00.000Z"
    assert asker(hub).lock_model("model", want(not_before=floor)).date.startswith("2026-06-18")


def test_a_commit_of_unknown_date_is_not_taken_for_new(hub: HubServer) -> None:
    hub.repos["Owner/Model"] = Repo(FILES, commits=False)
    floor = datetime.date(2026, 6, 18)
    error = refusal(hub, want(revision=COMMIT, not_before=floor))
    assert "no known date" in str(error)


@pytest.fixture
def locked(hub: HubServer) -> LockedRecipe:
    hub.repos["Owner/Model"] = Repo(FILES)
    model = asker(hub).lock_model("model", want(exclude=["*.md"]))
    image = LockedImage(repository="ghcr.io/o/i", tag="2026-06-18", version="0.23.0")
    return LockedRecipe(image=image, models={"model": model})


def test_the_lock_file_reads_well_and_back(locked: LockedRecipe, tmp_path: Path) -> None:
    path = tmp_path / "recipes.lock"
    assert read_lock(path) == Lock()
    lock = Lock().with_recipe("r", locked.with_digest("sha256:" + "a" * 64))
    assert write_lock(path, lock)
    assert read_lock(path) == lock
    before = path.stat()
    assert not write_lock(path, lock)
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    lines = path.read_text().splitlines()
    digest = next(f for f in locked.models["model"].files if f.git_sha1).git_sha1
    assert f"          - {{path: config.json, size: 2, git_sha1: {digest}}}" in lines
    assert [entry.name for entry in tmp_path.iterdir()] == ["recipes.lock"]


def test_order_does_not_show(locked: LockedRecipe) -> None:
    a = Lock().with_recipe("a", locked).with_recipe("b", locked)
    b = Lock().with_recipe("b", locked).with_recipe("a", locked)
    assert format_lock(a) == format_lock(b)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<<<<<<< HEAD\nschema: 1\n=======\n", "line"),
        ("schema: 9\n", "schema is 9"),
        ("schema: 1\nrecipes: {r: {}}\n", "recipes → r → image"),
        ("schema: 1\nrecipies: {}\n", "recipies"),
        ("[]", "something else than a lock"),
        ("\xff", "recipes.lock"),
    ],
)
def test_a_damaged_lock_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "recipes.lock"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SpecError, match="lock can't be read") as caught:
        read_lock(path)
    assert says in str(caught.value) and str(path) in str(caught.value)


def test_pins_stay_until_another_question_is_asked(locked: LockedRecipe) -> None:
    image = ImageRef("ghcr.io/o/i", "2026-06-18", None, "0.23.0")
    asked = {"model": want(exclude=["*.md"])}
    assert stale(locked, image, asked) == ()
    assert stale(locked, image, {"model": want(exclude=["*.md"], revision=COMMIT)}) == ()
    assert stale(locked, ImageRef("ghcr.io/o/i", "2026-07-01", None, None), asked)
    assert stale(locked, image, {})
    assert stale(locked, image, {**asked, "drafter": want()})
    for other in (
        want(),
        want("Owner/Other", exclude=["*.md"]),
        want(exclude=["*.md"], revision="v2"),
        want(exclude=["*.md"], not_before=datetime.date(2026, 6, 19)),
    ):
        assert stale(locked, image, {"model": other})
