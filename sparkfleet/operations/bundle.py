"""Put many files on a host with one remote command: a tar on standard input and a short script.

pyinfra's own `files.put` costs a fact and a transfer per file and stages uploads under /tmp at the
default umask, secrets included. Here everything arrives under a 0700 directory beside its place and
is moved there whole, so that a run that dies leaves either the old or the new content.
"""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placement:
    """A file or a directory as it is to stand on the host, owned by root.

    `files` maps names to content and mode; the single key "" means that `target` itself is a file.
    `link`, where given, is made to point at `target` in one step (an atomic rename).
    """

    target: str
    files: Mapping[str, tuple[bytes, int]] = field(repr=False)
    directory_mode: int = 0o755
    parent_mode: int = 0o755
    link: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether the target is one file and not a directory."""
        return set(self.files) == {""}


def tarball(placements: Iterable[Placement]) -> bytes:
    """The placements as a tar archive; the n-th one under the name `n`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number, placement in enumerate(placements):
            if not placement.is_file:
                entry = tarfile.TarInfo(str(number))
                entry.type, entry.mode = tarfile.DIRTYPE, placement.directory_mode
                archive.addfile(entry)
            for name, (content, mode) in sorted(placement.files.items()):
                entry = tarfile.TarInfo(f"{number}/{name}" if name else str(number))
                entry.mode, entry.size = mode, len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def install_script(root: str, placements: Iterable[Placement], after: Iterable[str] = ()) -> str:
    """The shell script that reads the tar and puts each placement in its place.

    `root` is where the incoming files wait, unreadable to others; `after` are shell lines to run
    at the end (such as `systemctl daemon-reload`).
    """
    lines = [
        "set -eu",
        f"mkdir -p {shlex.quote(root)}",
        f"incoming=$(mktemp -d {shlex.quote(root + '/.incoming.XXXXXX')})",
        "trap 'rm -rf \"$incoming\"' EXIT",
        'tar -x -p --no-same-owner -C "$incoming"',
    ]
    for number, placement in enumerate(placements):
        target = shlex.quote(placement.target)
        parent = shlex.quote(placement.target.rpartition("/")[0] or "/")
        lines.append(f"[ -d {parent} ] || install -d -m {placement.parent_mode:o} {parent}")
        if not placement.is_file:  # a directory can't be renamed over another one
            lines.append(f'if [ -e {target} ]; then mv -T {target} "$incoming/old-{number}"; fi')
        lines.append(f'mv -T "$incoming/{number}" {target}')
        if placement.link:
            link = shlex.quote(placement.link)
            lines.append(f"ln -sfn {target} {link}.new && mv -T {link}.new {link}")
    lines.extend(after)
    return "\n".join(lines)
