"""Run a program inside layers without a container: mounts of a private namespace, gone with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lab.command import attempt
from lab.errors import LabError

#: $1 is the mount point. Everything mounted here vanishes when the last process of it ends.
_SCRIPT = """
set -e
mount -t tmpfs tmpfs {room}
mkdir {room}/root {room}/upper {room}/work
mount -t overlay overlay -o {overlay} {room}/root
mount -t proc proc {room}/root/proc
mount --rbind /dev {room}/root/dev
mount -t sysfs -o ro sysfs {room}/root/sys
{binds}
exec chroot {room}/root env -i {env} {argv}
"""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
_ROOM = "/mnt"
"""Covered by a tmpfs inside the private namespace only."""


def command(
    lower: Iterable[Path],
    argv: Sequence[str],
    *,
    write_to: Path | None = None,
    binds: Mapping[Path, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The argv that runs `argv` over the trees in `lower`, bottom first.

    What it writes is thrown away, or goes into the tree `write_to`. `binds` maps directories of
    this machine to places inside (which must exist in a tree, or be directly under the root).
    """
    layers = ":".join(str(path) for path in reversed(list(lower)))
    upper, work = f"{_ROOM}/upper", f"{_ROOM}/work"
    if write_to is not None:
        upper = str(write_to)
        work = f"{write_to}.work"
    script = _SCRIPT.format(
        room=_ROOM,
        overlay=shlex.quote(f"lowerdir={layers},upperdir={upper},workdir={work}"),
        binds="\n".join(
            f"mkdir -p {_ROOM}/root{inside} && mount --bind {shlex.quote(str(outside))} "
            f"{_ROOM}/root{inside}"
            for outside, inside in (binds or {}).items()
        ),
        env=shlex.join(f"{k}={v}" for k, v in (ENVIRONMENT | dict(env or {})).items()),
        argv=shlex.join(argv),
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def run(
    lower: Iterable[Path],
    argv: Sequence[str],
    *,
    write_to: Path | None = None,
    binds: Mapping[Path, str] | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float = 900,
) -> str:
    """Run and return what it printed. Raises LabError with its last words when it fails."""
    if write_to is not None:
        Path(f"{write_to}.work").mkdir(exist_ok=True)
    done = attempt(command(lower, argv, write_to=write_to, binds=binds, env=env), timeout=timeout)
    if write_to is not None:
        attempt(["rm", "-rf", f"{write_to}.work"])
    if check and done.returncode != 0:
        last = " / ".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise LabError(f"`{' '.join(argv[:4])}` failed inside the engine image: {last}")
    return done.stdout
