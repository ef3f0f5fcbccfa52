"""Docker, asked over its own socket: a few milliseconds, where each `docker` command costs 50.

HTTP/1.0 keeps the client to a dozen lines: the daemon answers whole and closes.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkfleet.node.survey_gpu import package_version, run
from sparkfleet.node.survey_host import filesystem, program, text_or_none

SOCKET = "/run/docker.sock"

#: Seconds for one answer of the daemon.
TIMEOUT = 8.0

#: Where the Compose plugin may lie, in Docker's own order.
PLUGIN_DIRECTORIES = (
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
)

#: Packages that bring the plugin: Docker's own, Ubuntu's, Debian's.
COMPOSE_PACKAGES = ("docker-compose-plugin", "docker-compose-v2", "docker-compose")

#: Labels that tell whose container it is; others may hold anything and stay on the host.
LABELS = ("sparkfleet.", "com.docker.compose.project")

#: Arguments whose value is a secret.
SECRET_FLAGS = ("--api-key", "--hf-token", "--hf_token")


class DockerError(Exception):
    """The daemon refused or failed; the text is its own."""


def get(path: str) -> Any:
    """Return the daemon's JSON answer; raises OSError where it can't be reached, DockerError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(SOCKET)
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        chunks = iter(lambda: connection.recv(1 << 16), b"")
        head, _, body = b"".join(chunks).partition(b"\r\n\r\n")
    status = head.split(None, 2)[1:2]
    if status != [b"200"]:
        raise DockerError(body.decode("utf-8", "backslashreplace").strip() or "no answer")
    return json.loads(body)


def docker(request: dict[str, Any]) -> dict[str, Any]:
    """The daemon, with its containers, its images and the disks that it stores them on.

    `absent` (not installed), `error` (installed, does not answer) and `denied` (answers, but not
    to this user) are told apart.
    """
    if not Path(SOCKET).exists():
        if program("dockerd") is None:
            return {"absent": True}
        return {"error": f"{SOCKET} does not exist: the daemon is not running"}
    try:
        info = get("/info")
    except PermissionError as error:
        return {"denied": str(error)}
    except ConnectionRefusedError:
        return {"error": f"{SOCKET} refuses connections: the daemon is not running"}
    except (OSError, DockerError) as error:
        return {"error": f"{SOCKET}: {error}"}
    images = get("/images/json")
    return {
        "version": info.get("ServerVersion"),
        "root": info.get("DockerRootDir"),
        "driver": info.get("Driver"),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "default_runtime": info.get("DefaultRuntime"),
        "cdi": cdi_devices(info),
        "live_restore": bool(info.get("LiveRestoreEnabled")),
        "containers": list(containers(request, images)),
        "images": {
            reference: image["Id"]
            for image in images
            for reference in [*(image.get("RepoDigests") or []), *(image.get("RepoTags") or [])]
        },
        "filesystems": {path: filesystem(path) for path in stores(info)},
    }


def why_not(section: dict[str, Any]) -> str:
    """Why the containers and images are not known, given the docker section."""
    if section.get("absent"):
        return "Docker is not installed"
    reasons = (section.get(key) for key in ("error", "denied", "unknown"))
    return next(filter(None, reasons), "the Docker daemon was not asked")


def stores(info: dict[str, Any]) -> list[str]:
    """Directories that grow with images: Docker's own, and containerd's where it keeps them."""
    paths = [info.get("DockerRootDir") or "/var/lib/docker"]
    status = dict(pair for pair in info.get("DriverStatus") or [] if len(pair) == 2)
    if str(status.get("driver-type", "")).startswith("io.containerd.snapshotter"):
        paths.append("/var/lib/containerd")
    return paths


def cdi_devices(info: dict[str, Any]) -> list[str]:
    """GPU devices that the daemon knows by CDI (Docker 28.2 and up list them)."""
    known = [device.get("ID", "") for device in info.get("DiscoveredDevices") or []]
    return [name for name in known if name.startswith("nvidia.com/gpu")]


def containers(request: dict[str, Any], images: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every container in short; in full those that have to do with us: by label, name or port."""
    digests = {image["Id"]: image.get("RepoDigests") or [] for image in images}
    names = set(request.get("containers", []))
    ports = set(request.get("ports", []))
    for item in get("/containers/json?all=1"):
        name = (item.get("Names") or ["/"])[0].lstrip("/")
        published = sorted(
            {(port["PublicPort"], port["PrivatePort"]) for port in item.get("Ports") or []
             if "PublicPort" in port}
        )  # fmt: skip
        labels = {
            key: value for key, value in (item.get("Labels") or {}).items()
            if key.startswith(LABELS)
        }  # fmt: skip
        short = {
            "name": name,
            "id": item["Id"],
            "image": item.get("Image"),
            "digests": digests.get(item.get("ImageID"), []),
            "state": item.get("State"),
            "ports": published,
            "labels": labels,
        }
        ours = any(key.startswith("sparkfleet.") for key in labels)
        host_network = (item.get("HostConfig") or {}).get("NetworkMode") == "host"
        if ours or host_network or name in names or ports & {port for port, _ in published}:
            short.update(details(item["Id"]))
        yield short


def details(container: str) -> dict[str, Any]:
    """What only an inspection tells. Never the environment: it may hold keys."""
    try:
        whole = get(f"/containers/{container}/json")
    except DockerError:  # removed since the list was made
        return {}
    state = whole["State"]
    return {
        "started": state.get("StartedAt"),
        "pid": state.get("Pid") or None,
        "exit_code": state.get("ExitCode"),
        "oom_killed": state.get("OOMKilled"),
        "restart": whole["HostConfig"].get("RestartPolicy", {}).get("Name"),
        "network": whole["HostConfig"].get("NetworkMode"),
        "cmd": without_secrets([whole["Path"], *whole["Args"]]),
        "mounts": [
            [mount.get("Source"), mount.get("Destination"), bool(mount.get("RW"))]
            for mount in whole.get("Mounts") or []
        ],
    }


def without_secrets(argv: list[str]) -> list[str]:
    """Return an argv with the values of secret flags masked."""
    masked: list[str] = []
    for argument in argv:
        flag, equals, _ = argument.partition("=")
        if masked and masked[-1] in SECRET_FLAGS:
            masked.append("***")
        elif equals and flag in SECRET_FLAGS:
            masked.append(f"{flag}=***")
        else:
            masked.append(re.sub(r"(--(?:api-key|hf[-_]token)[= ])\S+", r"\1***", argument))
    return masked


def compose(request: dict[str, Any]) -> dict[str, Any]:
    """The Compose plugin's version: from its package, or else from the plugin itself.

    Starting the plugin costs 50 ms, so a packaged one is not asked.
    """
    for directory in PLUGIN_DIRECTORIES:
        plugin = f"{directory}/docker-compose"
        if os.access(plugin, os.X_OK):
            packaged = packaged_version(plugin)
            if packaged:
                return {"version": packaged, "path": plugin}
            said = run([plugin, "docker-cli-plugin-metadata"], TIMEOUT)
            if said["rc"] != 0:
                return {"error": said["err"] or said["out"] or f"exit status {said['rc']}"}
            return {"version": json.loads(said["out"])["Version"], "path": plugin}
    return {"absent": True}


def packaged_version(plugin: str, dpkg: str = "/var/lib/dpkg") -> str | None:
    """Version of the Debian package that the plugin belongs to; None where it is in none."""
    for package in COMPOSE_PACKAGES:
        owned = text_or_none(f"{dpkg}/info/{package}.list")
        if owned is not None and plugin in owned.splitlines():
            return package_version(package, f"{dpkg}/status")
    return None
