"""Images as an OCI layout, and their way into a registry."""

from __future__ import annotations

import hashlib
import json
import platform
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.command import run
from lab.engine import plan
from lab.engine.layer import Layer

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Built:
    """An image of the layout: what it is called and what its manifest's digest is."""

    image: plan.Image
    digest: str

    def reference(self, registry: str) -> str:
        """`REGISTRY/REPOSITORY@sha256:…`."""
        return f"{registry}/{self.image.repository}@{self.digest}"


def write(layout: Path, images: Mapping[str, tuple[plan.Image, tuple[Layer, ...]]]) -> list[Built]:
    """Write configurations, manifests and the index over blobs that are there already."""
    blobs = layout / "blobs/sha256"
    built, entries = [], []
    for image, layers in images.values():
        config = _blob(blobs, _CONFIG, _configuration(image, layers))
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [
                {"mediaType": _LAYER, "digest": layer.digest, "size": layer.size}
                for layer in layers
            ],
        }
        entry = _blob(blobs, MANIFEST, manifest)
        built.append(Built(image, entry["digest"]))
        name = {"org.opencontainers.image.ref.name": image.name}
        entries.append(entry | {"annotations": name})
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    return built


def push(layout: Path, built: Built, registry: str) -> bool:
    """Bring one image into the registry, if it is not there; True when something was sent."""
    if remote_digest(registry, built.image) == built.digest:
        return False
    options = ["--preserve-digests", "--dest-tls-verify=false", "--quiet"]
    source = f"oci:{layout}:{built.image.name}"
    run(["skopeo", "--insecure-policy", "copy", *options, source,
         f"docker://{registry}/{built.image.name}"], timeout=900)  # fmt: skip
    return True


def remote_digest(registry: str, image: plan.Image) -> str | None:
    """The digest that the registry's tag points to; None where it has no such tag."""
    url = f"http://{registry}/v2/{image.repository}/manifests/{image.tag}"
    request = urllib.request.Request(url, method="HEAD", headers={"Accept": MANIFEST})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            digest: str | None = answer.headers.get("Docker-Content-Digest")
            return digest
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def _configuration(image: plan.Image, layers: tuple[Layer, ...]) -> dict[str, Any]:
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | image.env
    return {
        "created": "2026-01-01T00:00:00Z",
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": ["/bin/bash"],
            "Env": [f"{name}={value}" for name, value in env.items()],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [
            {"created": "2026-01-01T00:00:00Z", "created_by": f"lab.engine {name}"}
            for name in image.layers
        ],
    }


def _blob(blobs: Path, media_type: str, content: Any) -> dict[str, Any]:
    data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}
