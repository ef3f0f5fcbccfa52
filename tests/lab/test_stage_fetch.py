"""Fetching on a real host: in the engine image, as the owner, from the hub stand-in."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from lab.api import Lab
from sparkfleet.hub import Hub
from sparkfleet.hub_errors import HubError
from sparkfleet.spec.lock import LockedModel, is_staged, model_dir
from sparkfleet.spec.recipe import ModelFiles

from .stage_kit import MODELS, Kit, Outcome, digest_of
from .waiting import eventually

pytestmark = pytest.mark.lab
FULL = pytest.mark.full

IMAGE = "sparkfleet/standin:1"
OWNER = "spark"
BIG = 60  # megabytes


class Fetch:
    """A host that has the engine image, and the lab's hub."""

    def __init__(self, lab: Lab, host: str, image: str = IMAGE) -> None:
        self.lab = lab
        self.kit = Kit(lab, host)
        self.kit.install()
        repository, _, tag = image.partition(":")
        self.image = f"{lab.registry}/{repository}@{digest_of(lab, repository, tag)}"
        self.kit.run("pull", "pull.py", {"reference": self.image}).result  # noqa: B018
        self.uid, self.gid = self.kit.sh(f"id -u {OWNER}; id -g {OWNER}").split()
        self.control("DELETE", "faults")
        self.models: dict[str, LockedModel] = {}

    def control(self, method: str, what: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"{self.lab.hub}/_lab/{what}", method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def fault(self, **row: Any) -> None:
        self.control("POST", "faults", row)

    def sent(self, repo: str) -> int:
        """Bytes that the hub has sent of a repository's files since the counters began."""
        files = self.control("GET", "counters")["files"]
        return sum(row["bytes"] for name, row in files.items() if name.startswith(f"{repo}/"))

    def lock(self, repo: str, token: str | None = None) -> LockedModel:
        want = ModelFiles.model_validate({"repo": repo, "mount": "/model", "source": "the lab"})
        self.models[repo] = Hub(self.lab.hub, token=lambda: token).lock_model("model", want)
        return self.models[repo]

    def request(self, *repos: str, **more: Any) -> dict[str, Any]:
        models = [self.models.get(repo) or self.lock(repo) for repo in repos]
        return {
            "image": self.image,
            "uid": int(self.uid),
            "gid": int(self.gid),
            "models_dir": MODELS,
            "endpoint": self.lab.hub,
            "token_file": None,
            "pause": 0.2,
            "models": [
                {
                    "repo": model.repo,
                    "commit": model.commit,
                    "dir": model_dir(MODELS, model.repo, model.commit),
                    "files": [file.model_dump() for file in model.files],
                }
                for model in models
            ],
            **more,
        }

    def run(self, *repos: str, **more: Any) -> Outcome:
        return self.kit.run("fetch", "fetch.py", self.request(*repos, **more))

    def dir(self, repo: str) -> str:
        return model_dir(MODELS, repo, self.models[repo].commit)

    def staged(self, repo: str) -> bool:
        """What the controller concludes from what lies on the host."""
        base = self.dir(repo)
        listing = self.kit.sh(f"cd {base} && find . -type f -exec stat -c '%n %s %Y %y' {{}} +")
        found = {}
        for line in listing.splitlines():
            name, size, seconds, _, clock, _ = line.split()
            found[name[2:]] = [int(size), int(seconds) * 10**9 + int(clock.partition(".")[2])]
        stamp = json.loads(
            self.kit.sh(f"cat {base}/.sparkfleet-stamp.json 2>/dev/null || echo {{}}")
        )
        return is_staged(stamp, found, self.models[repo])

    def sums(self, repo: str) -> bool:
        """Whether every LFS file on the host has the hash that the hub names."""
        lines = [
            f"{f.sha256}  {self.dir(repo)}/{f.path}" for f in self.models[repo].files if f.sha256
        ]
        return "FAILED" not in self.kit.sh("sha256sum -c -", text="\n".join(lines) + "\n")

    def part_bytes(self) -> int:
        listing = self.kit.sh(f"find {MODELS}/.partial -name '*.part' -printf '%s\\n' || true")
        return sum(map(int, listing.split()))


@pytest.fixture
def fetch(lab: Lab, host: str) -> Iterator[Fetch]:
    fetch = Fetch(lab, host)
    yield fetch
    fetch.control("DELETE", "faults")
    fetch.kit.remove()


def test_models_arrive_as_the_owners_and_a_second_run_asks_nothing(fetch: Fetch) -> None:
    repos = ("lab/big-5", f"lab/big-{BIG}")
    outcome = fetch.run(*repos)
    assert outcome.result["bytes"] >= (BIG + 5) * 1_000_000
    assert outcome.progress[-1]["done"] == outcome.progress[-1]["total"]
    for repo in repos:
        assert fetch.staged(repo) and fetch.sums(repo)
        owners = fetch.kit.sh(f"find {fetch.dir(repo)} -printf '%u %m\\n' | sort -u").split("\n")
        assert set(filter(None, owners)) == {f"{OWNER} 644", f"{OWNER} 755"}
    fetch.control("DELETE", "counters")
    assert fetch.run(*repos).result == {"files": outcome.result["files"], "fetched": [], "bytes": 0}
    assert fetch.control("GET", "counters")["total"]["requests"] == 0
    assert not fetch.kit.sh("docker ps -aq --filter name=sparkfleet-fetch-stage")


@pytest.mark.parametrize("how", ["kill the container", "kill the job", "power cut"])
def test_a_download_that_was_cut_goes_on(fetch: Fetch, lab: Lab, how: str) -> None:
    repo = f"lab/big-{BIG}"
    request = fetch.request(repo)
    fetch.control("DELETE", "counters")
    fetch.fault(kind="rate", rate=12_000_000, where="body")
    fetch.kit.start("fetch", "fetch.py", request)
    eventually(lambda: fetch.part_bytes() > 35_000_000, 60, "most of the file")
    if how == "kill the container":
        fetch.kit.sh("docker kill -s KILL sparkfleet-fetch-stage-fetch")
    elif how == "kill the job":
        fetch.kit.sh("systemctl kill --signal=KILL sparkfleet-job-stage-fetch.service")
        # Its container lives on until the next run removes it.
        assert fetch.kit.follow("fetch", Outcome()).error["code"] == "died"
    else:
        lab.power_cycle(fetch.kit.host)
    fetch.control("DELETE", "faults")
    if how == "kill the container":  # the job itself goes on with another one
        outcome = fetch.kit.follow("fetch", Outcome())
        assert "once more" in outcome.log
    else:
        outcome = fetch.run(repo)
    assert outcome.result and fetch.staged(repo) and fetch.sums(repo)
    # Nothing that was safe came twice: a power cut may cost a sync step, a kill what was
    # under way.
    again = fetch.sent(repo) - fetch.models[repo].size
    assert again < (34_000_000 if how == "power cut" else 12_000_000)


def test_a_token_reaches_the_host_in_a_file_only(fetch: Fetch, lab: Lab) -> None:
    fetch.lock("lab/private", token="lab-token")
    assert fetch.run("lab/private").error["code"] == "hub-401"
    lab.write(fetch.kit.host, "/run/stage-token", "lab-token\n", "600")
    request = fetch.request("lab/private", "lab/big-5", token_file="/run/stage-token")
    fetch.fault(kind="rate", rate=1_000_000, where="body", repo="lab/big-5")
    fetch.kit.start("fetch", "fetch.py", request)
    running = "docker inspect sparkfleet-fetch-stage-fetch 2>/dev/null || true"
    eventually(lambda: len(fetch.kit.sh(running)) > 10, 30, "the container")
    looked = fetch.kit.sh(
        f"{running}; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n' || true"
    )
    fetch.control("DELETE", "faults")
    outcome = fetch.kit.follow("fetch", Outcome())
    assert outcome.result and fetch.staged("lab/private")
    told = json.dumps(outcome.events) + fetch.kit.sh("journalctl -u sparkfleet-job-stage-fetch")
    assert "HF_HUB_OFFLINE" in looked and "lab-token" not in looked + told
    assert fetch.kit.sh("ls /run/sparkfleet/tokens | wc -l").strip() == "0"
    anonymous = [row for row in fetch.control("GET", "log") if "lab/big-5" in json.dumps(row)]
    assert anonymous and "lab-token" not in json.dumps(anonymous)
    fetch.kit.sh("rm -f /run/stage-token")


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"kind": "wrong-bytes"}, "wrong-bytes"),
        ({"kind": "stall", "after": 200_000, "where": "body"}, "stalled"),
        # The same code against the same answers runs in the unit tests, without a container.
        pytest.param(
            {"kind": "404", "where": "resolve", "code": "EntryNotFound"}, "hub-404", marks=FULL
        ),
        pytest.param({"kind": "500", "where": "resolve"}, "hub-5xx", marks=FULL),
        pytest.param({"kind": "429", "where": "resolve", "retry_after": 0}, "hub-429", marks=FULL),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_hub_does_wrong_is_said_and_the_next_run_carries_on(
    fetch: Fetch, row: dict[str, Any], code: str
) -> None:
    fetch.lock("lab/big-5")
    fetch.fault(repo="lab/big-5", **row)
    error = fetch.run("lab/big-5", tries=1, stall=4 if code == "stalled" else 120).error
    assert error["code"] == code and error["what"] and error["next"], error
    assert not fetch.staged("lab/big-5")
    fetch.control("DELETE", "faults")
    assert fetch.run("lab/big-5").result and fetch.staged("lab/big-5")


def test_an_account_that_was_not_let_in_is_told_before_any_host_is_asked(fetch: Fetch) -> None:
    with pytest.raises(HubError, match="Accept its terms") as caught:
        fetch.lock("lab/gated", token="lab-other-token")
    assert caught.value.code == "hub-403"
    assert fetch.lock("lab/gated", token="lab-token").private


def test_passing_trouble_passes(fetch: Fetch) -> None:
    fetch.fault(kind="503", repo="lab/big-5", where="resolve", count=2)
    fetch.fault(kind="short-file", repo="lab/big-5", where="body", after=2_000_000, count=1)
    assert fetch.run("lab/big-5").result and fetch.sums("lab/big-5")


def test_a_full_disk_is_a_sentence_and_the_next_run_carries_on(fetch: Fetch, lab: Lab) -> None:
    fetch.lock("lab/big-20")
    with lab.small_disk(fetch.kit.host, MODELS, 64):
        error = fetch.run("lab/big-20").error  # a GiB stays free for the system
        assert error["code"] == "disk-full" and "still to come" in error["what"]
        lab.fill_disk(fetch.kit.host, MODELS, leave_mib=9)
        error = fetch.run("lab/big-20", reserve=-(10**9)).error  # as if it filled up on the way
        assert error["code"] == "disk-full" and "full" in error["what"], error
        assert not fetch.kit.sh(f"ls {MODELS}/*/*/.sparkfleet-stamp.json 2>/dev/null || true")
    assert fetch.run("lab/big-20").result and fetch.staged("lab/big-20")


def test_the_hub_is_down(fetch: Fetch, lab: Lab) -> None:
    fetch.lock("lab/big-5")
    lab.stop_service("hub")
    try:
        error = fetch.run("lab/big-5", tries=1).error
    finally:
        lab.start_service("hub")
    assert error["code"] == "unreachable" and "hub_endpoint" in error["next"]
    assert fetch.run("lab/big-5").result


@FULL
@pytest.mark.parametrize("image", ["sparkfleet/engine:0.31.0", "sparkfleet/engine:0.32.0"])
def test_the_real_engines_clients_fetch_too(lab: Lab, host: str, image: str) -> None:
    fetch = Fetch(lab, host, image)  # huggingface_hub 1.33 and 2.4
    try:
        fetch.fault(kind="short-file", repo="lab/big-5", where="body", after=2_000_000, count=1)
        assert fetch.run("lab/big-5").result and fetch.staged("lab/big-5")
    finally:
        fetch.control("DELETE", "faults")
        fetch.kit.remove()
