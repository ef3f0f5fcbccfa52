"""The hub stand-in, judged by the real huggingface_hub client over loopback."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from lab.hub.faults import Fault
from lab.hub.server import OTHER_TOKEN, TOKEN, Hub
from lab.hub.store import Store, git_blob_sha1, write_noise

REPO = "lab/tiny"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text('{"model_type": "qwen3"}\n')
    (source / "sub").mkdir()
    (source / "sub" / "note.txt").write_text("hello")
    write_noise(source / "model.safetensors", 300_000, seed=1)
    running = Hub(tmp_path / "data", "127.0.0.1", 0)
    for repo, gated, private in (
        (REPO, False, False),
        ("lab/gated", "manual", False),
        ("lab/private", False, True),
    ):
        running.store.publish(repo, source, date="2026-07-01T00:00:00.000Z", gated=gated,
                              private=private)  # fmt: skip
    running.start()
    yield running
    running.stop()


@pytest.fixture
def api(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=False)


def head(hub: Hub, repo: str = REPO) -> str:
    found = hub.store.repo(repo)
    assert found is not None
    return found.head.id


def fetch(hub: Hub, target: Path, repo: str = REPO, token: str | bool = False) -> Path:
    commit = head(hub, repo)
    return Path(
        snapshot_download(
            repo,
            revision=commit,
            local_dir=target,
            endpoint=hub.endpoint,
            token=token,
            etag_timeout=5,
        )
    )


def control(hub: Hub, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"{hub.endpoint}/_lab/{path}", method=method, data=json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def test_metadata_names_commit_sizes_and_hashes(hub: Hub, api: HfApi) -> None:
    info = api.model_info(REPO, files_metadata=True)
    assert info.sha == head(hub)
    files = {s.rfilename: s for s in info.siblings or []}
    weights = hub.store.data / REPO / head(hub) / "model.safetensors"
    lfs = files["model.safetensors"].lfs
    assert lfs is not None
    assert lfs.sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert files["model.safetensors"].size == weights.stat().st_size
    assert files["sub/note.txt"].lfs is None
    assert files["sub/note.txt"].blob_id == git_blob_sha1(5, [b"hello"])
    [commit] = api.list_repo_commits(REPO)
    assert commit.commit_id == info.sha
    assert commit.created_at.date().isoformat() == "2026-07-01"


def test_snapshot_is_complete_and_a_second_one_asks_nothing(hub: Hub, tmp_path: Path) -> None:
    target = fetch(hub, tmp_path / "got")
    for name in ("config.json", "sub/note.txt", "model.safetensors"):
        published = hub.store.data / REPO / head(hub) / name
        assert (target / name).read_bytes() == published.read_bytes()
    control(hub, "DELETE", "counters")
    fetch(hub, tmp_path / "got")
    assert control(hub, "GET", "counters")["total"]["requests"] == 0


def test_large_files_come_from_the_other_port_and_what_was_sent_is_counted(
    hub: Hub, tmp_path: Path
) -> None:
    fetch(hub, tmp_path / "got")
    weights = hub.store.data / REPO / head(hub) / "model.safetensors"
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    log = hub.journal.recent()
    assert any(e["path"].endswith("/model.safetensors") and e["status"] == 302 for e in log)
    assert any(e["path"].endswith(f"/{sha256}") and e["status"] == 200 for e in log)
    counted = control(hub, "GET", "counters")["files"][f"{REPO}/model.safetensors"]
    assert counted["bytes"] == weights.stat().st_size


def test_ranges_are_honoured(hub: Hub) -> None:
    weights = (hub.store.data / REPO / head(hub) / "model.safetensors").read_bytes()
    url = f"{hub.endpoint}/{REPO}/resolve/{head(hub)}/model.safetensors"
    request = urllib.request.Request(url, headers={"Range": "bytes=299000-"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 206
        assert answer.headers["Content-Range"] == f"bytes 299000-{len(weights) - 1}/{len(weights)}"
        assert answer.read() == weights[299000:]
    outside = urllib.request.Request(url, headers={"Range": f"bytes={len(weights)}-"})
    with pytest.raises(urllib.error.HTTPError, match="416"):
        urllib.request.urlopen(outside, timeout=5)


def test_absent_things_are_told_apart(hub: Hub, api: HfApi) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("lab/Tiny")  # ids are case-sensitive
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="0" * 40)
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(REPO, "absent.txt", endpoint=hub.endpoint, token=False)


@pytest.mark.parametrize("token", [False, OTHER_TOKEN])
def test_gated_shows_metadata_but_not_files(hub: Hub, tmp_path: Path, token: str | bool) -> None:
    info = HfApi(endpoint=hub.endpoint, token=token).model_info("lab/gated")
    assert info.gated == "manual"
    with pytest.raises(GatedRepoError):
        hf_hub_download(
            "lab/gated", "config.json", endpoint=hub.endpoint, token=token, local_dir=tmp_path
        )


def test_the_right_token_opens_gated_and_private(hub: Hub, tmp_path: Path) -> None:
    for repo in ("lab/gated", "lab/private"):
        assert (fetch(hub, tmp_path / repo, repo, TOKEN) / "model.safetensors").exists()
    with pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=hub.endpoint, token=False).model_info("lab/private")


def test_a_stale_token_closes_a_public_repository(hub: Hub) -> None:
    with pytest.raises(HfHubHTTPError) as caught:
        HfApi(endpoint=hub.endpoint, token="lab-expired").model_info(REPO)
    assert caught.value.response.status_code == 401


@pytest.mark.parametrize("status", ["401", "403", "404", "429", "500"])
def test_status_faults_are_used_up(hub: Hub, api: HfApi, status: str) -> None:
    control(hub, "POST", "faults", {"kind": status, "where": "api", "count": 1, "retry_after": 1})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{hub.endpoint}/api/models/{REPO}", timeout=5)
    assert caught.value.code == int(status)
    assert caught.value.headers["Retry-After"] == "1"
    assert api.model_info(REPO).sha == head(hub)


def test_wrong_bytes_keep_the_size_and_pass_the_client(hub: Hub, tmp_path: Path) -> None:
    hub.faults.add(Fault("wrong-bytes", file="*.safetensors", count=1))
    got = (fetch(hub, tmp_path / "got") / "model.safetensors").read_bytes()
    sent = (hub.store.data / REPO / head(hub) / "model.safetensors").read_bytes()
    assert len(got) == len(sent)
    assert sum(a != b for a, b in zip(got, sent, strict=True)) == 1


def test_a_dropped_connection_is_resumed_by_the_client(hub: Hub, tmp_path: Path) -> None:
    hub.faults.add(Fault("short-file", file="*.safetensors", after=100_000, count=1))
    target = fetch(hub, tmp_path / "got")
    sent = hub.store.data / REPO / head(hub) / "model.safetensors"
    assert (target / "model.safetensors").read_bytes() == sent.read_bytes()
    bodies = [e for e in hub.journal.recent() if e["method"] == "GET" and e["bytes"] > 99_999]
    assert [e["bytes"] for e in bodies] == [100_000, sent.stat().st_size]


def test_a_stalled_body_goes_on_when_the_fault_is_cleared(hub: Hub) -> None:
    hub.faults.add(Fault("stall", file="*.safetensors", after=1000))
    url = f"{hub.endpoint}/{REPO}/resolve/main/model.safetensors"
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert len(answer.read(1000)) == 1000
        rest: list[bytes] = []
        reader = threading.Thread(target=lambda: rest.append(answer.read()))
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()
        control(hub, "DELETE", "faults")
        reader.join(5)
    assert len(rest[0]) > 290_000


def test_the_rate_is_shared_by_all_bodies(hub: Hub) -> None:
    throttle = hub.throttle
    throttle.pace(1000, 10_000)
    assert throttle._free_at > 0
    hub.faults.add(Fault("rate", rate=10**9))
    url = f"{hub.endpoint}/{REPO}/resolve/main/model.safetensors"
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert len(answer.read()) > 299_000


def test_a_moved_head_leaves_the_old_commit_readable(hub: Hub, api: HfApi, tmp_path: Path) -> None:
    before = head(hub)
    moved = control(hub, "POST", "move", {"repo": REPO, "date": "2026-08-01T00:00:00.000Z"})
    assert api.model_info(REPO).sha == moved["commit"] != before
    assert api.model_info(REPO, revision=before).sha == before
    assert len(api.list_repo_commits(REPO)) == 2


def test_bad_faults_are_refused_with_a_sentence(hub: Hub) -> None:
    with pytest.raises(ValueError, match="kind must be one of"):
        Fault.parse({"kind": "explode"})
    with pytest.raises(ValueError, match="unknown keys"):
        Fault.parse({"kind": "500", "times": 3})


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.txt").write_text("a")
    store = Store(tmp_path / "data")
    first = store.publish("lab/x", source)
    assert store.publish("lab/x", source) == first
    repo = store.repo("lab/x")
    assert repo is not None and len(repo.commits) == 1
    moved = store.move_head("lab/x", date="2026-12-01T00:00:00.000Z")
    assert store.publish("lab/x", source, keep_head=True) == first
    repo = store.repo("lab/x")
    assert repo is not None and repo.head.id == moved


def test_a_big_repository_is_made_on_demand_and_reproducible(tmp_path: Path) -> None:
    made = [Store(tmp_path / name).repo("lab/big-1") for name in ("one", "two")]
    assert made[0] is not None and made[0] == made[1]
    weights = made[0].head.file("model.safetensors")
    assert weights is not None and 1_000_000 < weights.size < 1_001_000 and weights.sha256


def test_the_search_finds_ids_in_any_case(hub: Hub, api: HfApi) -> None:
    found = [model.id for model in api.list_models(search="TINY")]
    assert found == [REPO]
    assert not list(api.list_models(search="private")), "private ones are not shown"
