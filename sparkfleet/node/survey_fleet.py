"""What sparkfleet itself keeps on the host: units, releases, models, jobs; and what the owner left
there by hand that it could take over.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterator

from sparkfleet.node.survey_gpu import run
from sparkfleet.node.survey_host import file_sha256, text, text_or_none

NODE_PROGRAMS = "/opt/sparkfleet/node"

#: Services that keep a box answering when memory runs out.
GUARDS = ("earlyoom.service", "systemd-oomd.service")

#: Seconds for systemctl.
SYSTEMCTL_TIMEOUT = 8.0

#: Properties asked of every unit, and our names for them.
PROPERTIES = {
    "Id": "id",
    "LoadState": "load",
    "ActiveState": "active",
    "SubState": "sub",
    "UnitFileState": "enabled",
    "NRestarts": "restarts",
    "Result": "result",
    "FragmentPath": "path",
    "NeedDaemonReload": "needs_reload",
    "MainPID": "pid",
}

STAMP = ".sparkfleet-stamp.json"

#: At most so many files are listed of one directory tree: a model has a few dozen.
MAX_FILES = 2000


def units(request: dict[str, Any]) -> dict[str, Any]:
    """State of our units, Docker's, the guards' and running jobs', in one call of systemctl."""
    names = [*request.get("units", []), "docker.service", *GUARDS, "sparkfleet-job-*"]
    said = run(
        ["systemctl", "show", "--no-pager", f"--property={','.join(PROPERTIES)}", "--", *names],
        SYSTEMCTL_TIMEOUT,
    )
    if said["rc"] != 0:
        raise RuntimeError(said["err"] or f"systemctl ended with status {said['rc']}")
    found = {}
    for block in re.split(r"\n\s*\n", said["out"]):
        pairs = (line.partition("=") for line in block.splitlines())
        unit = {PROPERTIES[key]: value for key, _, value in pairs if key in PROPERTIES}
        if unit.get("id"):
            found[unit.pop("id")] = unit_state(unit)
    return found


def unit_state(unit: dict[str, str]) -> dict[str, Any]:
    """One unit's properties with numbers and truths as such, and its file's sha256."""
    path = unit.get("path", "")
    return {
        **unit,
        "restarts": int(unit["restarts"]) if unit.get("restarts", "").isdigit() else None,
        "pid": int(unit.get("pid") or 0) or None,
        "needs_reload": unit.get("needs_reload") == "yes",
        "file_sha256": file_sha256(path) if path and os.path.isfile(path) else None,
    }


def node_files(request: dict[str, Any]) -> dict[str, str]:
    """Digests of our programs on the host, by relative path."""
    return dict(tree_digests(NODE_PROGRAMS))


def tree_digests(directory: str) -> Iterator[tuple[str, str]]:
    """Relative path and sha256 of every (small) file below a directory."""
    for path in walk(directory):
        if not path.endswith(".pyc"):
            yield os.path.relpath(path, directory), file_sha256(path)


def walk(directory: str) -> Iterator[str]:
    """Every file below a directory, bounded; nothing where it does not exist."""
    seen = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            seen += 1
            if seen > MAX_FILES:
                raise RuntimeError(f"{directory} holds more than {MAX_FILES} files")
            yield os.path.join(folder, name)


def services(request: dict[str, Any]) -> dict[str, Any]:
    """Releases and state of every service below the root, asked for or not."""
    base = os.path.join(request["root"], "services")
    present = os.listdir(base) if os.path.isdir(base) else []
    names = sorted({*present, *request.get("services", [])})
    return {name: service(os.path.join(base, name), name) for name in names}


def service(directory: str, name: str) -> dict[str, Any]:
    """One service: its links, the digests of what runs, its state, and whether it is switching."""
    releases = os.path.join(directory, "releases")
    key_file = os.path.join(directory, "secrets", "engine.yaml")
    state = text_or_none(os.path.join(directory, "state.json"))
    trial = text_or_none(f"/run/sparkfleet/{name}.trial")
    return {
        "current": link(os.path.join(directory, "current")),
        "previous": link(os.path.join(directory, "previous")),
        "trial": trial and os.path.basename(trial),
        "releases": sorted(os.listdir(releases)) if os.path.isdir(releases) else [],
        "files": dict(tree_digests(os.path.realpath(os.path.join(directory, "current")))),
        "state": json.loads(state) if state else None,
        # A digest of a long random key tells nothing of the key.
        "secret_sha256_prefix": file_sha256(key_file)[:12] if os.path.exists(key_file) else None,
        "switching": locked(f"/run/sparkfleet/{name}.lock"),
    }


def link(path: str) -> str | None:
    """Name of the directory that a link points to; None where there is no link."""
    return os.path.basename(os.readlink(path)) if os.path.islink(path) else None


def locked(path: str) -> bool:
    """Whether someone holds flock(2) on a file: read from /proc/locks, so nobody is disturbed."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(device in line.split() for line in text("/proc/locks").splitlines())


def models(request: dict[str, Any]) -> dict[str, Any]:
    """Files of each wanted model directory with size and mtime, and the stamp of a whole one."""
    return {directory: model(directory) for directory in request.get("model_dirs", [])}


def model(directory: str) -> dict[str, Any]:
    """One model directory: the stamp says what was verified, the files what is there now."""
    stamp = text_or_none(os.path.join(directory, STAMP))
    files = {}
    for path in walk(directory):
        status = os.stat(path)
        files[os.path.relpath(path, directory)] = [status.st_size, status.st_mtime_ns]
    files.pop(STAMP, None)
    return {"stamp": json.loads(stamp) if stamp else None, "files": files}


def partials(request: dict[str, Any]) -> dict[str, int]:
    """Bytes on disk of downloads under way, by path below the models' `.partial`."""
    base = os.path.join(request.get("models_dir") or request["root"] + "/models", ".partial")
    # A sparse file counts as what it holds, not as what it will.
    return {os.path.relpath(path, base): os.stat(path).st_blocks * 512 for path in walk(base)}


def weights(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Model directories that the owner downloaded by hand: below the home, or the hub's cache."""
    home = request.get("home") or os.path.expanduser(f"~{os.environ.get('SUDO_USER', '')}")
    found = []
    if request.get("repos") and os.path.isdir(home):
        for name in sorted(os.listdir(home)):
            found.append(local_download(os.path.join(home, name)))
        for repo in request["repos"]:
            folder = "models--" + repo.replace("/", "--")
            found += snapshots(os.path.join(home, ".cache/huggingface/hub", folder), repo)
    return [entry for entry in found if entry]


def local_download(directory: str) -> dict[str, Any] | None:
    """A directory filled by `hf download --local-dir`: its metadata name the commit, per file."""
    metadata = os.path.join(directory, ".cache/huggingface/download")
    if not os.path.isdir(metadata):
        return None
    commits, files = set(), {}
    for path in walk(metadata):
        name, extension = os.path.splitext(os.path.relpath(path, metadata))
        file = os.path.join(directory, name)
        if extension == ".metadata" and os.path.isfile(file):
            commits.add(text(path).split("\n", 1)[0])
            files[name] = os.path.getsize(file)
    return {"dir": directory, "repo": None, "commits": sorted(commits), "files": files}


def snapshots(directory: str, repo: str) -> Iterator[dict[str, Any]]:
    """The commits of one repository in the hub's cache."""
    base = os.path.join(directory, "snapshots")
    for commit in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        folder = os.path.join(base, commit)
        files = {os.path.relpath(path, folder): os.path.getsize(path) for path in walk(folder)}
        yield {"dir": folder, "repo": repo, "commits": [commit], "files": files}


def jobs(request: dict[str, Any]) -> dict[str, Any]:
    """The last event of every job; whether it runs is in `units`."""
    base = os.path.join(request["root"], "jobs")
    found = {}
    for name in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        if name.endswith(".jsonl"):
            found[name[: -len(".jsonl")]] = {"last": last_event(os.path.join(base, name))}
    return found


def last_event(path: str) -> Any:
    """The last whole JSON line of an events file; None where there is none yet."""
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 65536))
        lines = file.read().decode("utf-8", "backslashreplace").splitlines()
    for line in reversed(lines):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return None
