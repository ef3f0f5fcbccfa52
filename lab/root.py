"""The root file system that all hosts share: a Debian layer, and over it the dress of a Spark.

Both are built once, into directories named by what defines them, and used as read-only overlay
layers. A half-built one never counts: it is built beside and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab import dress, toolkit
from lab.command import run
from lab.dress import File
from lab.settings import Settings

SUITE = "trixie"
PACKAGES = (
    "systemd,systemd-sysv,dbus,openssh-server,docker.io,docker-cli,docker-compose,iproute2,"
    "iptables,python3,curl,sudo,ca-certificates,rsync,procps,jq,kmod,iputils-ping"
)
#: Left out of the root: 100 MB that nothing in a simulated host reads.
EXCLUDED = "/usr/share/{man,doc,locale,info,lintian}/*"
OFFERS = " ".join(toolkit.OFFERED)
#: Run in the new root while it still has Debian's own package sources.
HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_*_key*',
    'mkdir -p "$1"/offers/partial',
    f'chroot "$1" apt-get -q -y -o Dir::Cache::archives=/offers install --download-only '
    f"--no-install-recommends {OFFERS}",
    'chroot "$1" sh -c "cd /offers && apt-get -q download rsync"',
)
#: Run in the dressed root. Debian's openssh-server enables ssh.service by itself.
DRESS_SCRIPT = """
set -eu
useradd --uid 1000 --user-group --create-home --shell /bin/bash --groups sudo spark
dpkg --install /toolkit.deb >/dev/null
rm /toolkit.deb
ln -sf /usr/lib/lab/nvidia-smi /usr/bin/nvidia-smi
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
mkdir -p /var/log/journal
systemctl -q enable systemd-networkd lab-meminfo lab-proc-sys
systemctl -q disable apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer fstrim.timer 2>/dev/null || true
# No host waits for a network with a way out: it would never come.
systemctl -q mask systemd-networkd-wait-online.service
"""


def identity(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def base_id() -> str:
    return identity(SUITE, PACKAGES, EXCLUDED, *HOOKS)


@functools.cache
def dress_id() -> str:
    """What the dress is made from. Once per process: a lab that is up keeps the root it has."""
    files = [f"{path}:{f.mode:o}:{f.owner}:{f.content}" for path, f in dress.common().items()]
    return identity(base_id(), toolkit.content_id(), DRESS_SCRIPT, *sorted(files))


def layers(settings: Settings) -> tuple[Path, Path]:
    """The overlay layers of every host, topmost first: dress, base."""
    roots = settings.cache / "roots"
    return roots / f"dress-{dress_id()}", roots / f"base-{base_id()}"


def apt_directory(settings: Settings) -> Path:
    return settings.cache / "apt" / dress_id()


def build(settings: Settings) -> None:
    """Build whichever layers and apt repository are missing, saying so; drop those of old.

    No lab may be up. Raises LabError.
    """
    settings.cache.mkdir(parents=True, exist_ok=True)
    with locked(settings.cache / "roots.lock"):
        top, base = layers(settings)
        if not base.exists():
            print("Building the hosts' Debian root (about a minute) ...", flush=True)
            build_base(base)
        apt = apt_directory(settings)
        if not apt.exists():
            build_apt(apt, base)
        if not top.exists():
            print("Dressing it as a Spark ...", flush=True)
            build_dress(top, base, apt)
        for old in {*base.parent.iterdir(), *apt.parent.iterdir()} - {top, base, apt}:
            shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock file, waiting for whoever holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fresh_directory(target: Path) -> Path:
    """An empty directory beside `target`, to be renamed to it when complete."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def build_base(target: Path) -> None:
    partial = fresh_directory(target)
    hooks = [f"--customize-hook={hook}" for hook in HOOKS]
    options = ["--mode=root", "--variant=minbase", "--quiet", f"--include={PACKAGES}"]
    options += [f"--dpkgopt=path-exclude={EXCLUDED}", '--aptopt=Acquire::Languages "none"']
    run(["mmdebstrap", *options, *hooks, SUITE, str(partial)], timeout=1800)
    partial.rename(target)


def build_apt(target: Path, base: Path) -> None:
    partial = fresh_directory(target)
    for deb in (base / "offers").glob("*.deb"):
        shutil.copy(deb, partial / deb.name)
    toolkit.build(partial)
    toolkit.index(partial)
    partial.rename(target)


def build_dress(target: Path, base: Path, apt: Path) -> None:
    partial = fresh_directory(target)
    write(partial, dress.common())
    (deb,) = apt.glob("nvidia-container-toolkit_*.deb")
    shutil.copy(deb, partial / "toolkit.deb")
    scratch = fresh_directory(target.with_name(target.name + ".scratch"))
    (scratch / "work").mkdir()
    (scratch / "root").mkdir()
    options = f"lowerdir={base},upperdir={partial},workdir={scratch}/work"
    # Mounted in a namespace of its own: nothing is left mounted, whatever happens.
    script = 'mount -t overlay overlay -o "$1" "$2/root" && chroot "$2/root" /bin/sh -c "$3"'
    own_mounts = ["unshare", "--mount", "--propagation", "private", "--"]
    run([*own_mounts, "sh", "-c", script, "sh", options, str(scratch), DRESS_SCRIPT])
    shutil.rmtree(scratch, ignore_errors=True)
    partial.rename(target)


def write(top: Path, files: Mapping[str, File]) -> None:
    """Write files under `top`. A new directory of a home belongs to the file's owner."""
    for name, file in files.items():
        path = top / name.lstrip("/")
        for parent in reversed(path.relative_to(top).parents[:-1]):
            directory = top / parent
            if not directory.exists():
                directory.mkdir(mode=0o755)
                if file.owner and len(parent.parts) > 1:
                    os.chown(directory, file.owner, file.owner)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(file.content)
        path.chmod(file.mode)
        os.chown(path, file.owner, file.owner)
