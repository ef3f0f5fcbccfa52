"""The hub client of the engine image, and what its failures mean. Any huggingface_hub from 0.34.

The releases differ in their HTTP library (requests, httpx, httpx2), so only what they share is
used: `hf_hub_url`, `build_hf_headers`, `http_get`, the error classes and their `response`.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.partfile import PartFile

#: Bytes the client hands over at once; its own 10 MiB would show no progress on a slow line, and be
#: lost with the connection.
CHUNK = 512 * 1024
#: Seconds that a hub which limits requests may keep us waiting: its windows are five minutes long.
RATE_LIMIT_PATIENCE = 660.0


class Lost(Exception):
    """The transfer broke off and may be taken up again."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class Refused(Lost):
    """The hub answered, with an error."""

    def __init__(self, status: int, words: str, retry_after: float | None = None) -> None:
        kind = "5xx" if status >= 500 else str(status)
        super().__init__("short-file" if status == 416 else f"hub-{kind}", words)
        self.status, self.retry_after = status, retry_after

    @property
    def passing(self) -> bool:
        """Whether waiting may help."""
        return self.status in (408, 429) or self.status >= 500


class Tally:
    """Bytes of all files together. Called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._last = time.monotonic()
        self.total = self.done = self.came = 0
        self.item = ""

    def seen(self, count: int) -> None:
        """Bytes that were here already (negative: given up)."""
        with self._lock:
            self.done += count
            self._last = time.monotonic()

    def got(self, count: int) -> None:
        """Bytes that came over the network."""
        with self._lock:
            self.done += count
            self.came += count
            self._last = time.monotonic()

    def alive(self) -> None:
        """Begin to count silence anew."""
        with self._lock:
            self._last = time.monotonic()

    def silent(self) -> float:
        """Seconds since the last byte."""
        with self._lock:
            return time.monotonic() - self._last

    def rate(self) -> float:
        """Bytes a second over the network, in the last ten seconds."""
        with self._lock:
            now = time.monotonic()
            self._recent.append((now, self.came))
            while len(self._recent) > 2 and now - self._recent[0][0] > 10:
                self._recent.popleft()
            (then, before), (_, after) = self._recent[0], self._recent[-1]
            return (after - before) / max(now - then, 0.001)


class Hub:
    """Where the files come from."""

    def __init__(self, endpoint: str | None, token: str | None, events: Events) -> None:
        import huggingface_hub
        from huggingface_hub import constants

        constants.DOWNLOAD_CHUNK_SIZE = CHUNK
        self.endpoint = endpoint
        self.version = huggingface_hub.__version__
        self._token = token
        self._known: set[str] = set()  # repositories that want the token
        self._warnings = _Warnings(events)
        logging.getLogger("huggingface_hub").handlers = [self._warnings]

    @classmethod
    def of(cls, request: dict[str, Any], events: Events) -> Hub:
        """From a request; the token, if any, comes in a file. Raises Fault."""
        path = request.get("token_file")
        try:
            token = Path(path).read_text(encoding="utf-8").strip() if path else None
            return cls(request.get("endpoint"), token or None, events)
        except ImportError as error:
            raise Fault(
                "The engine image has no usable huggingface_hub.",
                where="the engine image",
                why=str(error),
                next="Name another image of the recipe in the inventory.",
                code="no-hub-client",
            ) from None
        except OSError as error:
            raise Fault(
                "The token's file can't be read.",
                where=str(path),
                why=error.strerror or str(error),
                next="Run the same command again; it puts the file there anew.",
                code="token",
            ) from None

    def move(self, repo: str, commit: str, path: str, part: PartFile) -> None:
        """Move bytes of the file from where `part` ends. Raises Lost, Refused, Overrun, OSError."""
        token = self._token if repo in self._known else None
        try:
            self._get(repo, commit, path, part, token)
        except Refused as refused:
            # Anonymous first: a stale token turns a public repository into a refusal.
            if refused.status not in (401, 403, 404) or token == self._token:
                raise
            self._known.add(repo)
            self._get(repo, commit, path, part, self._token)

    def _get(self, repo: str, commit: str, path: str, part: PartFile, token: str | None) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers = build_hf_headers(token=token or False, library_name="sparkfleet")
        # A compressed answer can't be resumed at a byte of the file.
        headers["Accept-Encoding"] = "identity"
        url = hf_hub_url(repo, path, revision=commit, endpoint=self.endpoint)
        try:
            http_get(url, part, resume_size=part.size, headers=headers)  # type: ignore[arg-type]
        except OSError as error:
            # requests' errors are OSErrors too; only the disk's come with a number of these.
            if error.errno in DISK_ERRORS:
                raise
            raise self._meaning(error) from None
        except RecursionError:  # http_get takes up a broken stream by calling itself
            raise Lost("unreachable", "the connection broke very often") from None
        except Exception as error:
            if not type(error).__module__.startswith(("httpx", "httpcore", "huggingface_hub")):
                raise
            raise self._meaning(error) from None

    def _meaning(self, error: Exception) -> Lost:
        """What an error of the client or its HTTP library means for the file."""
        response = getattr(error, "response", None)
        if response is None:
            return Lost(*_transport(error))
        status, after = response.status_code, str(response.headers.get("Retry-After") or "")
        self._warnings.limited = status == 429
        wait = float(after) if after.isdigit() else None
        return Refused(status, f"the hub answered {status}", wait)

    def patience(self, stall: float) -> float:
        """Seconds of silence that are bearable: more where the hub told us to wait."""
        return max(stall, RATE_LIMIT_PATIENCE) if self._warnings.limited else stall

    def stalled(self, seconds: float, where: str) -> Fault:
        """The fault of a download in which nothing moves."""
        if self._warnings.limited:
            return Fault(
                f"The hub has kept us waiting for {seconds:.0f} s: it was asked too often (429).",
                where=where,
                next="Wait some minutes and run the same command again: it goes on from here.",
                code="hub-429",
            )
        last = self._warnings.last
        return Fault(
            f"The download stalled: not one byte in {seconds:.0f} s.",
            where=where,
            why=f"The last word of the hub client: {last}" if last else "",
            next="Look at the network and run the same command again: it goes on from here.",
            code="stalled",
        )


class _Warnings(logging.Handler):
    """What the hub client warns of while it waits or tries again by itself."""

    def __init__(self, events: Events) -> None:
        super().__init__(logging.WARNING)
        self._events, self.last, self.limited = events, "", False

    def emit(self, record: logging.LogRecord) -> None:
        # Signed URLs carry an access right in their query.
        self.last = record.getMessage().split("?", 1)[0].strip()[:300]
        self.limited = "429" in self.last or "Rate limited" in self.last
        self._events.log(self.last)


DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)


def _transport(error: BaseException) -> tuple[str, str]:
    name = type(error).__name__
    words = str(error).split("?", 1)[0].strip()[:200] or name
    late = "Timeout" in name and "Connect" not in name
    return ("stalled" if late else "unreachable"), f"the connection failed ({words})"
