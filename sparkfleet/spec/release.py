"""A release: the files that define what one service runs, and the hash that names them.

The same plan gives the same bytes, and the same bytes give the same hash; what does not reach a
file (a batch size, a soak) cannot change it. The hash is the release's directory on the node.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sparkfleet.spec.plan import ServicePlan

COMPOSE = "compose.yaml"
MANIFEST = "release.json"
PROOF = "proof.json"

ENGINE_CONFIG = "engine.yaml"
GUARD = "sparkfleet_guard.py"

INSIDE = "/run/sparkfleet"
"""Where the container finds what is ours: the engine's configuration, the guard, the key."""

CONFIG_MOUNT = f"{INSIDE}/{ENGINE_CONFIG}"
"""What `--config` must say of a service with auth: key; it loads the guard and holds no secret."""

HASH_LENGTH = 12

RESTART_SECONDS = 10
"""Pause before systemd starts a dead engine again."""


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One file of a release, owned by root on the node."""

    content: str
    mode: int

    @property
    def sha256(self) -> str:
        """Hash of the content as it lies on the node (UTF-8), hex."""
        return sha256(self.content.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Release:
    """Everything that defines what one service runs on one host."""

    service: str
    hash: str
    """12 hex digits: name of the directory, and identity."""
    unit: str
    """Name of the one file that is installed as a systemd unit."""
    files: dict[str, ReleaseFile]

    @property
    def digests(self) -> dict[str, str]:
        """File name → SHA-256 of its content, to compare with what a survey read."""
        return {name: file.sha256 for name, file in self.files.items()}


def release_hash(files: Mapping[str, ReleaseFile]) -> str:
    """Give the hash of files rendered without a hash in them: names, modes and contents count."""
    rows = [[name, file.mode, file.content] for name, file in sorted(files.items())]
    return sha256(canonical_json(rows).encode()).hexdigest()[:HASH_LENGTH]


def canonical_json(value: object) -> str:
    """JSON with one form only: sorted keys, no spaces, text as it is."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def readable_json(value: object) -> str:
    """JSON for a file that a person may open: indented, keys in the order given."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one service, in seconds, each longer than the one that it must outlast."""

    boot: int
    """A start that takes longer has failed."""
    shutdown: int
    """How long the engine lets running requests end after SIGTERM (`--shutdown-timeout`)."""
    burst: int
    """Starts within the window; then the unit stays down."""

    @classmethod
    def of(cls, service: ServicePlan) -> Timing:
        """Read a plan's times; an engine without `--shutdown-timeout` cuts requests off at once."""
        shutdown = service.flags.get("shutdown-timeout", 0)
        return cls(
            boot=round(service.recipe.boot.timeout_minutes * 60),
            shutdown=shutdown if isinstance(shutdown, int) else 0,
            burst=service.recipe.restart.burst,
        )

    @property
    def grace(self) -> int:
        """Docker's patience before SIGKILL: the engine's own, and 30 s for it to unload."""
        return self.shutdown + 30

    @property
    def stop(self) -> int:
        """systemd's patience: Docker's, and a minute for compose to end after the container."""
        return self.grace + 60

    @property
    def window(self) -> int:
        """Window of the restart limit: a whole burst of the slowest boots fits, and a minute."""
        return self.burst * (self.boot + RESTART_SECONDS + self.stop) + 60


def manifest(service: ServicePlan, key_id: str | None) -> dict[str, Any]:
    """Give what the node's programs read about a release (`release.json`), the hash not included.

    `key_id` tells one API key from another without telling the key: a new key is a new release,
    because the engine must start again to take it.
    """
    timing = Timing.of(service)
    recipe = service.recipe
    return {
        "schema": 1,
        "service": service.name,
        "recipe": recipe.name,
        "image": service.image.pinned,
        "version": service.image.version,
        **({"floors": service.floors} if service.floors else {}),
        "utilization": service.utilization,
        "container": service.container,
        "project": service.project,
        "unit": service.unit,
        "port": service.port,
        "bind": service.bind,
        "auth": service.auth,
        "key_file": service.key_file,
        "key_id": key_id if service.auth == "key" else None,
        "drop_page_cache": recipe.drop_page_cache,
        "boot_timeout": timing.boot,
        "shutdown_timeout": timing.shutdown,
        "stop_timeout": timing.grace,
        "wedge_seconds": recipe.wedge.seconds,
        "restart_burst": timing.burst,
        "max_num_seqs": service.max_num_seqs,
        "models": {
            model.role: {"dir": model.dir, "repo": model.repo, "commit": model.commit}
            for model in service.models
        },
        "caches": service.cache_dirs,
        "markers": [row.model_dump() for row in recipe.boot.markers],
        "logs": _logs(service),
    }


def proof(service: ServicePlan) -> dict[str, Any]:
    """Give the request of the node's probe (`proof.json`)."""
    logs = _logs(service)
    return {
        "url": probe_url(service.bind, service.port),
        "key_file": service.key_file,
        "names": list(service.recipe.names),
        "version": service.image.version,
        "timeout": service.recipe.proof_timeout,
        "draft_counters": service.recipe.drafts,
        "logs": {
            "container": service.container,
            "forbidden": logs["forbidden"],
            "required": logs["required"],
        },
        "proofs": service.proofs,
    }


def probe_url(bind: str, port: int) -> str:
    """Give the address at which the node itself reaches a service bound to `bind`."""
    address = ipaddress.ip_address(bind)
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"


def _logs(service: ServicePlan) -> dict[str, list[dict[str, str]]]:
    # Only what the node's programs say or look for: a corrected source is no new release.
    logs = service.logs
    return {
        "forbidden": [{"text": row.text, "reason": row.reason} for row in logs.forbidden],
        "required": [{"text": row.text, "reason": row.reason} for row in logs.required],
        "fatal": [
            {"text": row.text, "meaning": row.meaning, "next": row.next} for row in logs.fatal
        ],
    }
