"""A host's disk: its overlay over the shared root, its Docker directory, its identity.

hosts/NAME/identity/   SSH host key; stays when the host is made fresh, so that it is known
hosts/NAME/root/       upper and work directory of the root overlay
hosts/NAME/docker/     /var/lib/docker, an ordinary directory (overlay on overlay fails)
hosts/NAME/stamp       what root/ was made from
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from lab import dress, root
from lab.command import run
from lab.settings import MAX_HOSTS, Settings, host_names


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


def prepare(settings: Settings, name: str) -> bool:
    """Make the disk of host `name` ready to mount. True where its old root was thrown away.

    An overlay over another root than it was made for is undefined, hence the stamp.
    Raises LabError. The host must be off.
    """
    secret, public = host_key(settings, name)
    keys = {"host": secret, "host.pub": public, "client.pub": client_key(settings)[1]}
    files = dress.of_host(settings, name, host_names(min(32, MAX_HOSTS)), keys)
    parts = [root.dress_id(), *(f"{p}\0{f.content}" for p, f in sorted(files.items()))]
    stamp = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    disk = settings.disk(name)
    stamp_file = disk / "stamp"
    (disk / "docker").mkdir(exist_ok=True, mode=0o710)
    if stamp_file.exists() and stamp_file.read_text() == stamp:
        return False
    stale = (disk / "root").exists()
    erase(settings, name, docker=stale)
    (disk / "docker").mkdir(exist_ok=True, mode=0o710)
    (disk / "root/upper").mkdir(parents=True)
    (disk / "root/work").mkdir()
    root.write(disk / "root/upper", files)
    stamp_file.write_text(stamp)
    return stale


def erase(settings: Settings, name: str, *, docker: bool) -> None:
    """Throw away the root of host `name`, and its Docker directory too if asked. It must be off."""
    disk = settings.disk(name)
    (disk / "stamp").unlink(missing_ok=True)
    for part in ("root", "docker") if docker else ("root",):
        shutil.rmtree(disk / part, ignore_errors=True)


def existing(settings: Settings) -> list[str]:
    """Names of the hosts that have a disk."""
    return sorted(path.name for path in (settings.cache / "hosts").glob("spark-*"))
