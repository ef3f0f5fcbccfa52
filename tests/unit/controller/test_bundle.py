"""Many files, one command: what arrives stands whole, with its mode, or not at all."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from sparkfleet.operations.bundle import Placement, install_script, tarball


def install(root: Path, placements: Sequence[Placement], after: Sequence[str] = ()) -> None:
    script = install_script(str(root), placements, after)
    subprocess.run(["sh", "-c", script], input=tarball(placements), check=True, timeout=20)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_files_and_directories_arrive_with_their_modes(tmp_path: Path) -> None:
    release = Placement(
        str(tmp_path / "releases/abc"),
        {"compose.yaml": (b"a: $$1\n", 0o644), "deep/er.json": ("é".encode(), 0o600)},
    )
    secret = Placement(
        str(tmp_path / "secrets/key"), {"": (b"api-key: x\n", 0o600)}, parent_mode=0o700
    )
    install(tmp_path / "root", [release, secret])
    assert (tmp_path / "releases/abc/compose.yaml").read_bytes() == b"a: $$1\n"
    assert mode(tmp_path / "releases/abc/deep/er.json") == 0o600
    assert mode(tmp_path / "secrets/key") == 0o600
    assert mode(tmp_path / "secrets") == 0o700
    assert mode(tmp_path / "releases/abc") == 0o755


def test_a_directory_is_replaced_whole_and_nothing_is_left_behind(tmp_path: Path) -> None:
    target = str(tmp_path / "node")
    install(tmp_path / "root", [Placement(target, {"old.py": (b"1", 0o644)})])
    install(tmp_path / "root", [Placement(target, {"new.py": (b"2", 0o644)})])
    assert [path.name for path in Path(target).iterdir()] == ["new.py"]
    assert list((tmp_path / "root").iterdir()) == []


def test_a_link_moves_in_one_step(tmp_path: Path) -> None:
    link = tmp_path / "current"
    for number in ("1", "2"):
        one = Placement(str(tmp_path / number), {"f": (number.encode(), 0o644)}, link=str(link))
        install(tmp_path / "root", [one])
    assert (link / "f").read_bytes() == b"2"


def test_names_with_spaces_and_quotes_are_taken_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "it's a $dir"
    install(tmp_path / "root", [Placement(str(target), {"a 'b'": (b"x", 0o644)})])
    assert (target / "a 'b'").read_bytes() == b"x"


def test_lines_after_run_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file"
    after = [f"cp {target} {tmp_path}/copy"]
    install(tmp_path / "root", [Placement(str(target), {"": (b"x", 0o644)})], after)
    assert (tmp_path / "copy").read_bytes() == b"x"


def test_a_truncated_transfer_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"before")
    placements = [Placement(str(target), {"": (b"x" * 100_000, 0o644)})]
    script = install_script(str(tmp_path / "root"), placements)
    done = subprocess.run(
        ["sh", "-c", script], input=tarball(placements)[:50_000], capture_output=True, timeout=20
    )
    assert done.returncode != 0
    assert target.read_bytes() == b"before"
