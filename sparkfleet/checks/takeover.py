"""How what the owner started by hand is taken over: commands as pure text, run elsewhere.

Nothing of the owner's is deleted: a container is stopped and renamed, weights are linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from shlex import quote

from sparkfleet.checks.adoption import FoundWeights
from sparkfleet.facts.host import Container


def parked_name(box: Container) -> str:
    """The name under which a stopped container of the owner's waits."""
    return f"{box.name}-by-hand-{box.id[:6]}"


def park(boxes: Sequence[Container]) -> str:
    """Shell text that stops the owner's containers and frees their names.

    A restart policy would bring a stopped one back with the next Docker, so it is switched off.
    For the moment between the last check of the new release and its start: until then the old
    engine goes on serving.
    """
    lines = ["set -e"]
    for box in boxes:
        if box.running:
            lines.append(f"docker update --restart=no {box.id} >/dev/null")
            lines.append(f"docker stop {box.id} >/dev/null")
        lines.append(_rename(box, parked_name(box)))
    return "\n".join(lines)


def _rename(box: Container, name: str) -> str:
    """Docker refuses to give a container the name it has, and a switch that was cut is repeated."""
    has = f'"$(docker inspect -f {{{{.Name}}}} {box.id})"'
    return f"[ {has} = {quote('/' + name)} ] || docker rename {box.id} {quote(name)}"


def put_back(boxes: Sequence[Container]) -> str:
    """Shell text that undoes `park`, for a release that failed its proof."""
    lines = ["set -e"]
    for box in boxes:
        lines.append(_rename(box, box.name))
        if box.running:
            lines.append(f"docker start {box.id} >/dev/null")
            if box.restart:
                lines.append(f"docker update --restart={quote(box.restart)} {box.id} >/dev/null")
    return "\n".join(lines)


def link_weights(found: Sequence[FoundWeights], uid: int, gid: int) -> str:
    """Shell text that brings weights found on the host to where staging looks for them.

    Hard links cost neither time nor space; on another file system the bytes are copied. Staging
    then reads every file and checks its hash, as after a download.
    """
    lines = ["set -e"]
    for weights in found:
        base = PurePosixPath(weights.model.dir)
        for path in weights.files:
            source, target = PurePosixPath(weights.source, path), base / path
            # Each level for itself: `install -d` gives only the last one its owner.
            folders = [
                base.parent,
                *reversed([p for p in target.parents if p.is_relative_to(base)]),
            ]
            for folder in folders:
                lines.append(f"install -d -m 0755 -o {uid} -g {gid} {quote(str(folder))}")
            pair = f"{quote(str(source))} {quote(str(target))}"
            # The hub's cache holds links to its blobs: what they lead to is wanted.
            lines.append(f"cp -fL --link {pair} 2>/dev/null || cp -fL {pair}")
            lines.append(f"chown {uid}:{gid} {quote(str(target))}")
    return "\n".join(dict.fromkeys(lines))
