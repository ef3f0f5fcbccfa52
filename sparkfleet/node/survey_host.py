"""The host itself: who it is, its system, memory, disks and listening ports. Reads /proc and /etc;
starts no program.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pwd
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Where programs are looked for; the same for root and for the owner.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: The keys that `identity` gives.
IDENTITY = ("user", "machine_id", "host_keys", "boot_id", "uptime", "arch", "kernel")

#: State of a listening socket in /proc/net/tcp.
LISTEN = "0A"


def program(name: str) -> str | None:
    """Return where a program lies, or None. (shutil.which costs 5 ms to import.)"""
    places = (f"{directory}/{name}" for directory in SEARCH_PATH.split(":"))
    return next((place for place in places if os.access(place, os.X_OK)), None)


def text(path: str | Path, limit: int = 1 << 20) -> str:
    """Return at most `limit` bytes of a file as text; bytes that are not UTF-8 stay visible."""
    with Path(path).open("rb") as file:
        return file.read(limit).decode("utf-8", "backslashreplace")


def text_or_none(path: str | Path) -> str | None:
    """Return the stripped text of a file, or None where there is none."""
    try:
        return text(path).strip()
    except FileNotFoundError:
        return None


def file_sha256(path: str | Path) -> str:
    """Return the sha256 of a small file, in hex."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def children(directory: str | Path) -> list[Path]:
    """What a directory holds, by name; nothing where there is no such directory."""
    return sorted(Path(directory).iterdir()) if Path(directory).is_dir() else []


def identity(request: dict[str, Any]) -> dict[str, Any]:
    """Who this host is, and who the owner (the user of the SSH session) is on it."""
    user = pwd.getpwuid(int(os.environ.get("SUDO_UID") or os.getuid()))
    machine_id = text_or_none("/etc/machine-id")
    return {
        "user": {
            "name": user.pw_name,
            "uid": user.pw_uid,
            "gid": user.pw_gid,
            "home": user.pw_dir,
        },
        # machine-id(5) asks not to hand the id itself around; a digest tells two hosts apart.
        "machine_id": machine_id
        and hashlib.sha256(b"sparkfleet:" + machine_id.encode()).hexdigest()[:16],
        "host_keys": host_keys("/etc/ssh"),
        "boot_id": text_or_none("/proc/sys/kernel/random/boot_id"),
        "uptime": float(text("/proc/uptime").split()[0]),
        "arch": os.uname().machine,
        "kernel": os.uname().release,
    }


def host_keys(directory: str) -> dict[str, str]:
    """Return the SSH host keys' fingerprints by type, as `ssh-keygen -l` prints them."""
    keys = {}
    for path in children(directory):
        if re.fullmatch(r"ssh_host_\w+_key\.pub", path.name):
            kind, blob = text(path).split()[:2]
            digest = base64.b64encode(hashlib.sha256(base64.b64decode(blob)).digest())
            keys[kind] = "SHA256:" + digest.decode().rstrip("=")
    return keys


def assignments(content: str) -> dict[str, str]:
    """Return KEY="value" lines as a mapping; where a key repeats, the last one holds."""
    found = {}
    for line in content.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            found[key] = value.strip().strip("\"'")
    return found


def operating_system(request: dict[str, Any]) -> dict[str, Any]:
    """The distribution, from os-release."""
    release = assignments(text("/etc/os-release"))
    return {
        "id": release.get("ID"),
        "version": release.get("VERSION_ID"),
        "title": release.get("PRETTY_NAME"),
    }


def dgx_release(request: dict[str, Any]) -> dict[str, Any] | None:
    """What /etc/dgx-release says; None on other machines."""
    content = text_or_none("/etc/dgx-release")
    return None if content is None else dgx(content)


def dgx(content: str) -> dict[str, Any]:
    """Name, platform and update level.

    The file also holds the serial number: only these keys ever leave the host.
    """
    release = assignments(content)
    return {
        "name": release.get("DGX_NAME"),
        "platform": release.get("DGX_PLATFORM"),
        "ota": release.get("DGX_OTA_VERSION"),  # repeated per update: the last one holds
    }


def memory(request: dict[str, Any]) -> dict[str, int]:
    """Total, available and swap, in KiB, as the kernel says (`free` is localized)."""
    return meminfo(text("/proc/meminfo"))


def meminfo(content: str) -> dict[str, int]:
    """The figures that we want of /proc/meminfo, KiB; raises KeyError where one is missing."""
    lines = dict(line.split(":", 1) for line in content.splitlines() if ":" in line)
    names = {
        "total_kib": "MemTotal",
        "available_kib": "MemAvailable",
        "swap_kib": "SwapTotal",
        "swap_free_kib": "SwapFree",
    }
    return {key: int(lines[name].split()[0]) for key, name in names.items()}


def filesystems(request: dict[str, Any]) -> dict[str, Any]:
    """Space on the file systems under the directories that a run fills."""
    wanted = [request.get("root"), request.get("models_dir"), *request.get("paths", [])]
    return {path: filesystem(path) for path in wanted if path}


def filesystem(path: str) -> dict[str, Any]:
    """Space in bytes where `path` lies, or will lie: its nearest parent that exists counts."""
    place = Path(path).resolve()
    while not place.exists():
        place = place.parent
    space = os.statvfs(place)
    device = place.stat().st_dev
    mount = place
    while not mount.is_mount():
        mount = mount.parent
    return {
        "dev": f"{os.major(device)}:{os.minor(device)}",
        "mount": str(mount),
        "free": space.f_bavail * space.f_frsize,
        "total": space.f_blocks * space.f_frsize,
        "read_only": bool(space.f_flag & os.ST_RDONLY),
    }


def listeners(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Who listens on the wanted ports; process and container are None where root is needed."""
    ports = {int(port) for port in request.get("ports", [])}
    found = [listener for listener in listening() if listener["port"] in ports]
    owners = socket_owners({listener["inode"] for listener in found}) if found else {}
    for listener in found:
        pid = owners.get(listener.pop("inode"))
        listener.update(pid=pid, process=None, container=None)
        if pid is not None:
            listener.update(process=process(pid), container=container_of(pid))
    return found


def listening() -> Iterator[dict[str, Any]]:
    """Every listening TCP socket of this network namespace."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (text_or_none(table) or "").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                address, port = fields[1].split(":")
                yield {"addr": ip(address), "port": int(port, 16), "inode": fields[9]}


def ip(packed: str) -> str:
    """Return the address that /proc/net/tcp writes as hex words in host byte order."""
    words = [int(packed[at : at + 8], 16) for at in range(0, len(packed), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))


def socket_owners(inodes: set[str]) -> dict[str, int]:
    """Return the process of each socket, as far as this user may see it."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[str, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            for handle in os.scandir(f"/proc/{entry.name}/fd"):
                link = os.readlink(handle.path)  # noqa: PTH115 (thousands of them)
                if link in wanted:
                    owners.setdefault(wanted[link], int(entry.name))
        except OSError:
            continue  # the process has gone, or is another user's
        if len(owners) == len(wanted):
            break
    return owners


def process(pid: int) -> str | None:
    """Return a process's short name: its command line may hold secrets."""
    return text_or_none(f"/proc/{pid}/comm")


def container_of(pid: int) -> str | None:
    """Return the id of the container that a process runs in, if any."""
    match = re.search(r"[0-9a-f]{64}", text_or_none(f"/proc/{pid}/cgroup") or "")
    return match.group() if match else None
