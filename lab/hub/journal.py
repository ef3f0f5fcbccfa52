"""What the hub was asked: counters by path and by file, and the last requests, for the tests."""

from __future__ import annotations

import collections
import json
import threading
import time
from pathlib import Path
from typing import Any


class Journal:
    """Counts requests and body bytes as they are sent; keeps the last 2000 requests."""

    def __init__(self, log: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._log = log
        self.reset()

    def reset(self) -> None:
        """Start counting from zero."""
        with self._lock:
            self._requests: collections.Counter[str] = collections.Counter()
            self._bytes: collections.Counter[str] = collections.Counter()
            self._files: dict[str, collections.Counter[str]] = {}
            self._recent: collections.deque[dict[str, Any]] = collections.deque(maxlen=2000)

    def sent(self, path: str, file: str | None, size: int) -> None:
        """Note `size` body bytes gone out for a path (and for `OWNER/NAME/FILE`, if it is one)."""
        with self._lock:
            self._bytes[path] += size
            if file is not None:
                self._files.setdefault(file, collections.Counter())["bytes"] += size

    def request(self, entry: dict[str, Any], file: str | None) -> None:
        """Note one finished request; an entry never holds the value of a header with a secret."""
        with self._lock:
            self._requests[entry["path"]] += 1
            if file is not None:
                self._files.setdefault(file, collections.Counter())["requests"] += 1
            self._recent.append(entry)
            if self._log is not None:
                with self._log.open("a") as stream:
                    stream.write(json.dumps({"time": round(time.time(), 3), **entry}) + "\n")

    def counters(self) -> dict[str, Any]:
        """`total`, `paths` and `files`, each with `requests` and `bytes` (of bodies)."""
        with self._lock:
            paths = {
                path: {"requests": count, "bytes": self._bytes[path]}
                for path, count in sorted(self._requests.items())
            }
            files = {
                name: {"requests": c["requests"], "bytes": c["bytes"]}
                for name, c in sorted(self._files.items())
            }
            total = {
                "requests": sum(self._requests.values()),
                "bytes": sum(self._bytes.values()),
            }
            return {"total": total, "paths": paths, "files": files}

    def recent(self) -> list[dict[str, Any]]:
        """The last requests, oldest first."""
        with self._lock:
            return list(self._recent)
