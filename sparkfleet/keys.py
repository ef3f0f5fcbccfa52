"""The fleet's API key: made at the first deploy, kept on the controller, readable by its owner."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from sparkfleet.spec.errors import SpecError


@dataclass(frozen=True)
class ApiKey:
    """The key and where it is kept. Never printed: its `repr` holds the path only."""

    path: Path
    value: str = field(repr=False)
    new: bool
    """Made in this run and not written yet."""

    @property
    def id(self) -> str:
        """Tells one key from another without telling the key (it is 256 random bits)."""
        return hashlib.sha256(self.value.encode()).hexdigest()[:12]

    @property
    def engine_file(self) -> bytes:
        """The file that the engine reads its key from, on the host."""
        return f"api-key: {json.dumps(self.value)}\n".encode()

    def save(self) -> None:
        """Write a new key, 0600, in a directory that only its owner may enter."""
        if not self.new:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(self.value + "\n")


def load_key(path: Path) -> ApiKey:
    """The key at `path`, or a new one that is still to be saved.

    Raises SpecError for a file that others may read or that holds no key.
    """
    try:
        mode = path.stat().st_mode & 0o777
        value = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ApiKey(path, "sk-" + secrets.token_urlsafe(32), new=True)
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise SpecError(
            f"The API key in {path} can't be read: {why}. Take the file back from where you keep "
            "it, or remove it: the next deploy makes a new key, which clients then need."
        ) from None
    if mode & 0o077:
        raise SpecError(
            f"The API key in {path} may be read by others (mode {mode:o}). "
            f"Close it first: chmod 600 {path}"
        )
    if len(value) < 16 or any(character.isspace() for character in value):
        raise SpecError(
            f"The file {path} holds no usable API key. Put one line of at least 16 characters "
            "there, or remove the file and the next deploy makes a new key."
        )
    return ApiKey(path, value, new=False)
