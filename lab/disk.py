"""A host's disk: its overlay over the shared root, its Docker directory, its identity.

hosts/NAME/identity/   SSH host key; stays when the host is made fresh, so that it is known
hosts/NAME/root/       upper and work directory of the root overlay
hosts/NAME/docker/     /var/lib/docker, an ordinary directory (overlay on overlay fails)
hosts/NAME/containerd/ /var/lib/containerd, likewise
hosts/NAME/stamp       what root/ was made from
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from lab import dress, root
from lab.command import run
from lab.dress import File
from lab.settings import Settings, host_names

#: How many hosts each host's /etc/hosts lists, so that adding one changes no disk.
LISTED = 32
#: Directories of /var/lib that hold images and containers.
STORES = ("docker", "containerd")


def keypair(path: Path, comment: str) -> tuple[str, str]:
    """The secret and public ed25519 key at `path`, made where missing. Raises LabError."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])
    return path.read_text(), Path(f"{path}.pub").read_text()


def client_key(settings: Settings) -> tuple[str, str]:
    """The key that the lab's controller logs in with."""
    return keypair(settings.cache / "hosts" / "client" / "id_ed25519", "sparkfleet-lab")


def host_key(settings: Settings, name: str) -> tuple[str, str]:
    return keypair(settings.disk(name) / "identity" / "ssh_host_ed25519_key", name)


def known_hosts(settings: Settings, names: list[str]) -> str:
    """The known_hosts file for these hosts, by address and by name."""
    lines = []
    for name in names:
        kind, key, *_ = host_key(settings, name)[1].split()
        lines.append(f"{settings.address(name)},{name} {kind} {key}\n")
    return "".join(lines)


def own_files(settings: Settings, name: str) -> dict[str, File]:
    """The files that host `name` has beside the shared root. Raises LabError."""
    secret, public = host_key(settings, name)
    keys = {"host": secret, "host.pub": public, "client.pub": client_key(settings)[1]}
    return dress.of_host(settings, name, host_names(LISTED), keys)


def stamp(files: Mapping[str, File]) -> str:
    """What a root is made from. An overlay over another root than its own is undefined."""
    parts = [root.dress_id(), *(f"{path}\0{file.content}" for path, file in files.items())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def stale(settings: Settings, names: list[str]) -> list[str]:
    """Those of the hosts whose disk was made from another root: it will be thrown away."""
    return [
        name
        for name in names
        if (file := settings.disk(name) / "stamp").exists()
        and file.read_text() != stamp(own_files(settings, name))
    ]


def prepare(settings: Settings, name: str) -> None:
    """Make the disk of host `name`, which must be off, ready to mount. Raises LabError."""
    files = own_files(settings, name)
    disk = settings.disk(name)
    file = disk / "stamp"
    if not file.exists() or file.read_text() != stamp(files):
        erase(settings, name, docker=file.exists())
        (disk / "root/upper").mkdir(parents=True)
        (disk / "root/work").mkdir()
        root.write(disk / "root/upper", files)
        file.write_text(stamp(files))
    for store in STORES:
        (disk / store).mkdir(exist_ok=True, mode=0o710)


def erase(settings: Settings, name: str, *, docker: bool) -> None:
    """Throw away the root of host `name`, and its images too if asked. It must be off.

    Docker's record of networks goes in any case: Docker 26 keeps the published port of a container
    whose start was cut by the power, "port is already allocated" until that record is gone.
    """
    disk = settings.disk(name)
    (disk / "stamp").unlink(missing_ok=True)
    for part in ("root", *STORES) if docker else ("root", "docker/network"):
        shutil.rmtree(disk / part, ignore_errors=True)


def existing(settings: Settings) -> list[str]:
    """Names of the hosts that have a disk."""
    return sorted(path.name for path in (settings.cache / "hosts").glob("spark-*"))
