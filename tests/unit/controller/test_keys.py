"""The API key: made once, kept closed, never shown."""

from pathlib import Path

import pytest

from sparkfleet.keys import load_key
from sparkfleet.spec.errors import SpecError


def test_a_new_key_is_kept_for_the_next_run_and_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "private" / "lab.key"
    first = load_key(path)
    assert first.new and not path.exists()
    first.save()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    again = load_key(path)
    assert not again.new
    assert (again.value, again.id) == (first.value, first.id)


def test_the_key_is_not_shown(tmp_path: Path) -> None:
    key = load_key(tmp_path / "lab.key")
    assert key.value not in repr(key) and key.value not in key.id


def test_two_keys_differ(tmp_path: Path) -> None:
    assert load_key(tmp_path / "a").value != load_key(tmp_path / "b").value


def test_a_key_that_others_may_read_is_refused_with_the_mend(tmp_path: Path) -> None:
    path = tmp_path / "lab.key"
    load_key(path).save()
    path.chmod(0o644)
    with pytest.raises(SpecError, match="chmod 600"):
        load_key(path)


@pytest.mark.parametrize("text", ["", "short\n", "two words that are long enough\n"])
def test_a_file_without_a_usable_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lab.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SpecError, match="no usable API key"):
        load_key(path)


def test_a_file_that_is_no_text_is_refused_with_the_mend(tmp_path: Path) -> None:
    path = tmp_path / "lab.key"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="it is no text"):
        load_key(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(SpecError, match="remove it"):
        load_key(path)
