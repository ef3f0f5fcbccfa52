"""What sparkfleet itself keeps on the host: units, releases, models, jobs; and what the owner left
there by hand that it could take over.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkfleet.node.survey_gpu import run
from sparkfleet.node.survey_host import children, file_sha256, text, text_or_none

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

#: What is read of every release's manifest.
MANIFEST = ("recipe", "image", "version", "utilization")

STAMP = ".sparkfleet-stamp.json"

#: Of a model's config.json (of its text part, where it has several).
CONFIG_KEYS = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "head_dim",
    "layer_types",
    "full_attention_interval",
)
MAX_JSON = 1 << 20

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
        "file_sha256": file_sha256(path) if path and Path(path).is_file() else None,
    }


def node_files(request: dict[str, Any]) -> dict[str, str]:
    """Digests of our programs on the host, by relative path."""
    return tree_digests(NODE_PROGRAMS)


def tree_digests(directory: str | Path) -> dict[str, str]:
    """Relative path and sha256 of every (small) file below a directory."""
    return {
        str(path.relative_to(directory)): file_sha256(path)
        for path in walk(directory)
        if path.suffix != ".pyc"
    }


def walk(directory: str | Path) -> Iterator[Path]:
    """Every file below a directory, bounded; nothing where it does not exist."""
    seen = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            seen += 1
            if seen > MAX_FILES:
                raise RuntimeError(f"{directory} holds more than {MAX_FILES} files")
            yield Path(folder, name)


def services(request: dict[str, Any]) -> dict[str, Any]:
    """Releases and state of every service below the root, asked for or not."""
    base = Path(request["root"], "services")
    names = sorted({*(path.name for path in children(base)), *request.get("services", [])})
    return {name: service(base / name, name) for name in names}


def service(directory: Path, name: str) -> dict[str, Any]:
    """One service: its links, the digests of what runs, its state, and whether it is switching."""
    key_file = directory / "secrets" / "engine.yaml"
    state = text_or_none(directory / "state.json")
    drain = text_or_none(directory / "drain.json")
    trial = text_or_none(f"/run/sparkfleet/{name}.trial")
    return {
        "current": link(directory / "current"),
        "previous": link(directory / "previous"),
        "trial": trial and Path(trial).name,
        "releases": {path.name: manifest(path) for path in children(directory / "releases")},
        "files": tree_digests((directory / "current").resolve()),
        "state": json.loads(state) if state else None,
        "figures": small_json(directory / "figures.json"),
        # A digest of a long random key tells nothing of the key.
        "secret_sha256_prefix": file_sha256(key_file)[:12] if key_file.exists() else None,
        "drain": drain and json.loads(drain),
        "switching": locked(f"/run/sparkfleet/{name}.lock"),
    }


def manifest(directory: Path) -> dict[str, Any]:
    """What a release runs, as far as it can be read."""
    whole = small_json(directory / "release.json")
    return {key: whole.get(key) for key in MANIFEST} if whole is not None else {}


def link(path: Path) -> str | None:
    """Name of the directory that a link points to; None where there is no link."""
    return path.readlink().name if path.is_symlink() else None


def locked(path: str) -> bool:
    """Whether someone holds flock(2) on a file: read from /proc/locks, so nobody is disturbed."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(device in line.split() for line in text("/proc/locks").splitlines())


def models(request: dict[str, Any]) -> dict[str, Any]:
    """Files of each wanted model directory with size and mtime, and the stamp of a whole one.

    The repository's other commits are read too: before the lock is made, the wanted one is not
    known by its commit yet.
    """
    wanted = [Path(directory) for directory in request.get("model_dirs", [])]
    commits = {path for directory in wanted for path in children(directory.parent)}
    return {str(directory): model(str(directory)) for directory in sorted({*wanted, *commits})}


def model(directory: str) -> dict[str, Any]:
    """One model directory: the stamp says what was verified, the files what is there now."""
    stamp = text_or_none(Path(directory, STAMP))
    files = {}
    for path in walk(directory):
        if path.name != STAMP:
            status = path.stat()
            files[str(path.relative_to(directory))] = [status.st_size, status.st_mtime_ns]
    return {
        "stamp": json.loads(stamp) if stamp else None,
        "files": files,
        "config": model_config(Path(directory, "config.json")),
    }


def model_config(path: Path) -> dict[str, Any] | None:
    """The keys of a model's config.json that say how large its KV cache is; None: not to be had."""
    whole = small_json(path) or {}
    part = whole.get("text_config", whole)
    if not isinstance(part, dict):
        return None
    return {key: part[key] for key in CONFIG_KEYS if key in part} or None


def small_json(path: Path) -> dict[str, Any] | None:
    """A mapping that is nice to know; None for whatever else is there: it must cost no section."""
    try:
        found = json.loads(text(path)) if path.stat().st_size <= MAX_JSON else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def partials(request: dict[str, Any]) -> dict[str, int]:
    """Bytes on disk of downloads under way, by path below the models' `.partial`."""
    base = Path(request.get("models_dir") or request["root"] + "/models", ".partial")
    # A sparse file counts as what it holds, not as what it will.
    return {str(path.relative_to(base)): path.stat().st_blocks * 512 for path in walk(base)}


def weights(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Model directories that the owner downloaded by hand: below the home, or the hub's cache."""
    home = Path(request.get("home") or f"~{os.environ.get('SUDO_USER', '')}").expanduser()
    repos = request.get("repos", [])
    found = [local_download(path) for path in children(home)] if repos else []
    for repo in repos:
        folder = "models--" + repo.replace("/", "--")
        found += snapshots(home / ".cache/huggingface/hub" / folder, repo)
    return [entry for entry in found if entry]


def local_download(directory: Path) -> dict[str, Any] | None:
    """A directory filled by `hf download --local-dir`: its metadata name the commit, per file."""
    metadata = directory / ".cache/huggingface/download"
    if not metadata.is_dir():
        return None
    commits, files = set(), {}
    for path in walk(metadata):
        name = path.relative_to(metadata).with_suffix("")
        if path.suffix == ".metadata" and (directory / name).is_file():
            commits.add(text(path).split("\n", 1)[0])
            files[str(name)] = (directory / name).stat().st_size
    return {"dir": str(directory), "repo": None, "commits": sorted(commits), "files": files}


def snapshots(directory: Path, repo: str) -> Iterator[dict[str, Any]]:
    """The commits of one repository in the hub's cache."""
    for folder in children(directory / "snapshots"):
        files = {str(path.relative_to(folder)): path.stat().st_size for path in walk(folder)}
        yield {"dir": str(folder), "repo": repo, "commits": [folder.name], "files": files}


def lease(request: dict[str, Any]) -> dict[str, Any]:
    """Which run holds this host, or held it last; empty where none ever did."""
    said = text_or_none(Path(request["root"], "lease.json"))
    return dict(json.loads(said)) if said else {}


def jobs(request: dict[str, Any]) -> dict[str, Any]:
    """The last event of every job; whether it runs is in `units`."""
    return {
        path.stem: {"last": last_event(path)}
        for path in children(Path(request["root"], "jobs"))
        if path.suffix == ".jsonl"
    }


def last_event(path: Path) -> Any:
    """The last whole JSON line of an events file; None where there is none yet."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 65536))
        lines = file.read().decode("utf-8", "backslashreplace").splitlines()
    for line in reversed(lines):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return None
