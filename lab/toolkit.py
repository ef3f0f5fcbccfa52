"""The lab's apt repository: a stand-in container toolkit, and a few of Debian's own packages.

The hosts' package sources point only here, so installing the missing toolkit is the real thing:
apt, dpkg, its lock, a maintainer's version.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from lab.command import run

#: The version that NVIDIA shipped for DGX OS at the time of the facts.
VERSION = "1.19.0-1"
CONTROL = f"""\
Package: nvidia-container-toolkit
Version: {VERSION}
Architecture: all
Maintainer: sparkfleet lab <lab@example.invalid>
Section: utils
Priority: optional
Depends: python3, runc
Description: stand-in for the NVIDIA Container toolkit
 Lets Docker accept a GPU request on a machine without a GPU.
"""
PROGRAMS = ("nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-ctk")
RELEASE_DATE = "Mon, 30 Nov 2026 12:00:00 UTC"
FILES = Path(__file__).parent / "files"
#: Debian packages offered beside the toolkit, for a deploy to install on a host.
OFFERED = ("haproxy", "socat", "earlyoom", "rsync")


def content_id() -> str:
    """Changes when the package would."""
    parts = [CONTROL, RELEASE_DATE, *((FILES / name).read_text() for name in PROGRAMS)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def build(directory: Path) -> Path:
    """Build the toolkit package into `directory` and return its file. Raises LabError."""
    target = directory / f"nvidia-container-toolkit_{VERSION}_all.deb"
    with tempfile.TemporaryDirectory(prefix="sparkfleet-lab-") as scratch:
        tree = Path(scratch) / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(CONTROL)
        (tree / "usr/bin").mkdir(parents=True)
        for name in PROGRAMS:
            shutil.copy(FILES / name, tree / "usr/bin" / name)
            (tree / "usr/bin" / name).chmod(0o755)
        tree.chmod(0o755)
        run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(tree), str(target)])
    return target


def index(directory: Path) -> None:
    """Write `Packages` and `Release` for the .deb files in `directory`, flat. Raises LabError."""
    entries = []
    for deb in sorted(directory.glob("*.deb")):
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        fields = run(["dpkg-deb", "--field", str(deb)]).rstrip("\n")
        entries.append(
            f"{fields}\nFilename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
        )
    packages = "\n".join(entries)
    (directory / "Packages").write_text(packages)
    digest = hashlib.sha256(packages.encode()).hexdigest()
    (directory / "Release").write_text(
        f"Origin: sparkfleet lab\nSuite: lab\nDate: {RELEASE_DATE}\n"
        f"SHA256:\n {digest} {len(packages.encode())} Packages\n"
    )
