"""The one error of the data: a sentence that the owner of the box can act on."""

from __future__ import annotations

from collections.abc import Iterable


class SpecError(ValueError):
    """What an inventory, recipe, hardware profile or lock says can't be done.

    The message is one full sentence or more: what, where (host or file, key, value), why, next
    step. `errors` holds the parts when several faults were found at once; each is reported.
    """

    def __init__(
        self,
        message: str,
        *,
        host: str | None = None,
        file: str | None = None,
        key: str | None = None,
        errors: tuple[SpecError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.host = host
        self.file = file
        self.key = key
        self.errors = errors or (self,)

    @classmethod
    def gather(cls, errors: Iterable[SpecError]) -> SpecError:
        """Join several errors into one whose message has one fault a line."""
        flat = tuple(part for error in errors for part in error.errors)
        if len(flat) == 1:
            return flat[0]
        hosts = {part.host for part in flat}
        files = {part.file for part in flat}
        return cls(
            "\n".join(str(part) for part in flat),
            host=hosts.pop() if len(hosts) == 1 else None,
            file=files.pop() if len(files) == 1 else None,
            errors=flat,
        )
