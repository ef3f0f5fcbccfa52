"""Builds what is missing: trees, layers, images, each kept under a hash of what defines it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from lab.engine import layer, oci, plan, tree
from lab.engine.layer import Layer


class Workshop:
    """The engine corner of the lab's cache directory."""

    def __init__(self, cache: Path) -> None:
        self.room = cache / "engine"
        self.layout = self.room / "oci"
        self.tools = tree.Tools(self.room / "wheels", self.room / "pip")
        for directory in (self.room / "trees", self.room / "layers", self.layout):
            directory.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One builder at a time, whichever process it is in."""
        with (self.room / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def images(self, wanted: list[plan.Image]) -> list[oci.Built]:
        """The wanted images in the layout, built where they are missing."""
        names = list(dict.fromkeys(name for image in wanted for name in image.layers))
        layers = self._layers(names)
        known = {
            image.name: (image, tuple(layers[name] for name in image.layers)) for image in wanted
        }
        return oci.write(self.layout, known)

    def trees(self, *names: str) -> list[Path]:
        """Unpacked trees, bottom first, to run a program in (see chroot)."""
        with ThreadPoolExecutor(2) as pool:
            jobs = self._tree_jobs(pool, list(names))
            return [jobs[name].result() for name in names]

    def engine_trees(self, version: str) -> list[Path]:
        """The trees of one real engine."""
        return self.trees("base", "site", f"engine-{version}")

    def tidy(self) -> None:
        """Throw away trees, layers and half-built things that nothing names any more."""
        names = {name for image in plan.IMAGES for name in image.layers}
        current = {tree.identity(name) for name in names}
        for path in (self.room / "trees").iterdir():
            if path.name not in current:
                shutil.rmtree(path)
        for path in (self.room / "layers").glob("*.json"):
            if path.stem not in current:
                path.unlink()
        kept = {json.loads(p.read_text())["digest"] for p in (self.room / "layers").glob("*.json")}
        for path in (self.layout / "blobs/sha256").iterdir():
            if path.stat().st_size > 1 << 20 and f"sha256:{path.name}" not in kept:
                path.unlink()

    def _layers(self, names: list[str]) -> dict[str, Layer]:
        done = {name: found for name in names if (found := self._known(name)) is not None}
        missing = [name for name in names if name not in done]
        if missing:
            with ThreadPoolExecutor(2) as pool:
                jobs = self._tree_jobs(pool, missing)
                packed = {n: pool.submit(self._pack, n, jobs[n]) for n in missing}
                done |= {name: job.result() for name, job in packed.items()}
        return done

    def _known(self, name: str) -> Layer | None:
        record = self.room / "layers" / f"{tree.identity(name)}.json"
        if not record.exists():
            return None
        found = Layer(**json.loads(record.read_text()))
        blob = self.layout / "blobs/sha256" / found.digest.removeprefix("sha256:")
        return found if blob.exists() and blob.stat().st_size == found.size else None

    def _pack(self, name: str, job: Future[Path]) -> Layer:
        with _told(f"packing {name}"):
            found = layer.pack(job.result(), self.layout / "blobs/sha256")
        record = self.room / "layers" / f"{tree.identity(name)}.json"
        record.write_text(json.dumps(asdict(found)))
        return found

    def _tree_jobs(self, pool: ThreadPoolExecutor, names: list[str]) -> dict[str, Future[Path]]:
        """Start building; whatever waits for another tree stands behind it in the queue."""
        jobs: dict[str, Future[Path]] = {}
        order = ["base", "site", "standin", *(f"engine-{v}" for v in plan.VERSIONS)]
        needed = {*names, "base"}
        if any(name.startswith("engine-") for name in names):
            needed.add("site")
        for name in order:
            if name in needed:
                jobs[name] = pool.submit(self._tree, name, jobs)
        return jobs

    def _tree(self, name: str, jobs: dict[str, Future[Path]]) -> Path:
        ready = self.room / "trees" / tree.identity(name)
        if ready.exists():
            return ready
        building = ready.with_name(ready.name + ".partial")
        for leftover in (building, building.with_name(building.name + ".work")):
            shutil.rmtree(leftover, ignore_errors=True)
        building.mkdir()
        building.chmod(0o755)
        base, site = (partial(_result, jobs, other) for other in ("base", "site"))
        with _told(f"building {name}"):
            if name == "base":
                tree.build_base(building)
            elif name == "standin":
                tree.build_standin(building, base, self.tools)
            elif name == "site":
                tree.fetch_torch(self.tools)
                tree.build_packages(building, name, base, self.tools)
            else:
                version = name.removeprefix("engine-")
                tree.build_engine(building, version, base, site, self.tools)
        os.replace(building, ready)  # noqa: PTH105 - a directory, and atomically
        return ready


def _result(jobs: dict[str, Future[Path]], name: str) -> Path:
    return jobs[name].result()


@contextmanager
def _told(what: str) -> Iterator[None]:
    start = time.monotonic()
    print(f"engine images: {what} …", flush=True)
    yield
    print(f"engine images: {what}: done in {time.monotonic() - start:.0f} s", flush=True)
