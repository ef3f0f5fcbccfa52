"""Root trees of the layers: Debian, site-packages, and what differs per engine version.

Each is a directory to be laid over the ones below it, named by a hash of what defines it. pip runs
on this machine but installs for the image's Python; only compiling runs inside the image.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.command import attempt, run
from lab.engine import chroot, plan
from lab.errors import LabError

SITE = f"usr/local/lib/python{plan.PYTHON}/dist-packages"

STANDIN = plan.HERE / "standin"
STANDIN_PACKAGE = "sparkfleet_standin"

LAUNCHER = """#!/usr/bin/python3
import sys

from {module} import {function}

if __name__ == "__main__":  # workers are spawned and import this file again
    sys.exit({function}())
"""
LAUNCHERS = {
    "vllm": ("vllm.entrypoints.cli.main", "main"),
    "hf": ("huggingface_hub.cli.hf", "main"),
}

SEED = "usr/local/share/vllm-cache"
"""What the engine finds out about the lab's model class at its first boot, 10 s of one core each
time: the launcher puts it into an empty cache directory, whose mount then holds the real thing."""
SEEDER = """#!/bin/sh
cache="${VLLM_CACHE_ROOT:-$HOME/.cache/vllm}"
[ -e "$cache/modelinfos" ] || {
    mkdir -p "$cache" && cp -r /usr/local/share/vllm-cache/modelinfos "$cache/"
} 2>/dev/null
exec /usr/local/bin/vllm-cli "$@"
"""
INSPECT = (
    "from vllm.model_executor.models.registry import ModelRegistry; "
    "ModelRegistry.models['Qwen3ForCausalLM'].inspect_model_cls()"
)


@dataclass(frozen=True)
class Tools:
    """Where pip keeps what it downloads."""

    wheels: Path
    pip_cache: Path


def identity(name: str) -> str:
    """A short hash of all that defines a tree: its pins, the plan, the kind of processor."""
    digest = hashlib.sha256(name.encode())
    sources = sorted(STANDIN.glob("*.py")) if name == "standin" else []
    for file in (plan.PINS / f"{name}.txt", *sources):
        if file.exists():
            digest.update(file.read_bytes())
    facts = [plan.SUITE, plan.PACKAGES, plan.EXCLUDED, plan.MTIME, plan.REVISION]
    facts += [platform.machine(), *(u.glob for u in plan.UNWANTED)]
    if name.startswith("engine-"):
        facts += [processor(), LAUNCHER, SEEDER, INSPECT]
    digest.update(json.dumps(facts).encode())
    return f"{name}-{digest.hexdigest()[:12]}"


def processor() -> str:
    """The flags that decide which of vLLM's CPU kernels this machine loads."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    return " ".join(sorted(flags & {"avx2", "avx512f", "avx512vl", "avx512bw", "avx512_bf16"}))


def build_base(tree: Path) -> None:
    """Debian with Python, by mmdebstrap; every file's content is a function of the packages."""
    options = ["--variant=minbase", f"--include={plan.PACKAGES}"]
    options += [f"--dpkgopt=path-exclude={pattern}" for pattern in _patterns(plan.EXCLUDED)]
    run(["mmdebstrap", "--quiet", *options, plan.SUITE, str(tree)], timeout=1800)
    for litter in ("var/cache/apt", "var/lib/apt/lists", "var/log", "var/cache/ldconfig"):
        shutil.rmtree(tree / litter, ignore_errors=True)
        (tree / litter).mkdir(parents=True)
    (tree / "etc/machine-id").write_text("")
    (tree / SITE).mkdir(parents=True, exist_ok=True)
    compile_all(tree, None, f"/usr/lib/python{plan.PYTHON}", "/usr/lib/python3")


def build_packages(tree: Path, name: str, base: Callable[[], Path], tools: Tools) -> None:
    """The pinned packages of one layer, trimmed and compiled; `base` is asked for at the end."""
    pip_install(tree / SITE, plan.PINS / f"{name}.txt", tools)
    for row in plan.UNWANTED:
        for found in list((tree / SITE).glob(row.glob)):
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    if name == "site":
        strip((tree / SITE / "torch/lib").glob("libtorch*.so"))
    compile_all(base(), tree, f"/{SITE}")


def build_standin(tree: Path, base: Callable[[], Path], tools: Tools) -> None:
    """The stand-in engine: one program, its HTTP server, and the hub's client."""
    own = tree / SITE / STANDIN_PACKAGE
    shutil.copytree(STANDIN, own, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    build_packages(tree, "standin", base, tools)
    _launcher(tree, "hf", *LAUNCHERS["hf"])
    _launcher(tree, "vllm", f"{STANDIN_PACKAGE}.main", "main")


def build_engine(
    tree: Path, version: str, base: Callable[[], Path], site: Callable[[], Path], tools: Tools
) -> None:
    """What one version of the engine adds to the shared site-packages."""
    build_packages(tree, f"engine-{version}", base, tools)
    for name, called in LAUNCHERS.items():
        _launcher(tree, name, *called)
    # vLLM asks for the version of a distribution called vllm, and `+cpu` in it picks the platform.
    metadata = tree / SITE / f"vllm-{version}+cpu.dist-info"
    metadata.mkdir()
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (metadata / "METADATA").write_text(text)
    wanted = kernel([base(), site()]) if platform.machine() == "x86_64" else "_C"
    for library in list((tree / SITE / "vllm").glob("_C*.so")):
        if library.name.split(".")[0] != wanted:
            library.unlink()
    strip((tree / SITE / "vllm").glob("*.so"))
    seed = tree / SEED
    seed.mkdir(parents=True)
    chroot.run(
        [base(), site(), tree],
        ["python3", "-c", INSPECT],
        binds={seed: "/seed"},
        env={"VLLM_CACHE_ROOT": "/seed"},
    )
    (tree / "usr/local/bin/vllm").rename(tree / "usr/local/bin/vllm-cli")
    (tree / "usr/local/bin/vllm").write_text(SEEDER)
    (tree / "usr/local/bin/vllm").chmod(0o755)


def kernel(lower: list[Path]) -> str:
    """Which build of its kernels vLLM will load on this processor, by the question it asks."""
    question = "import torch; print(torch.cpu._is_avx512_supported(), "
    question += "torch.cpu._is_avx512_bf16_supported())"
    wide, bf16 = chroot.run(lower, ["python3", "-c", question]).split()[-2:]
    return "_C_AVX2" if wide != "True" else "_C" if bf16 == "True" else "_C_AVX512"


def pip_install(target: Path, pins: Path, tools: Tools) -> None:
    """Install exactly these pins for the image's Python. Raises LabError with pip's last words."""
    options = ["--no-deps", "--no-compile", "--only-binary=:all:", "--upgrade"]
    options += ["--target", str(target), "--requirement", str(pins)]
    options += ["--find-links", str(tools.wheels)]
    _pip("install", *options, *image_platform(), cache=tools.pip_cache)


def fetch_torch(tools: Tools) -> None:
    """Put the `+cpu` torch into `wheels`: from the configured index, else from PyTorch's own."""
    wheels, pip_cache = tools.wheels, tools.pip_cache
    wheels.mkdir(parents=True, exist_ok=True)
    version = plan.TORCH.split("==")[1]
    if any(version in wheel.name for wheel in wheels.glob("torch-*.whl")):
        return
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(wheels), plan.TORCH]
    try:
        _pip("download", *options, *image_platform(), cache=pip_cache)
    except LabError:
        extra = ["--extra-index-url", plan.TORCH_INDEX]
        _pip("download", *options, *extra, *image_platform(), cache=pip_cache)


def image_platform() -> list[str]:
    """pip's options for "CPython 3.11 on Debian 12", whatever runs pip."""
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(36, 4, -1)]
    tags += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1")]
    options = ["--python-version", plan.PYTHON, "--implementation", "cp"]
    return options + [word for tag in tags for word in ("--platform", tag)]


def compile_all(base: Path, over: Path | None, *directories: str) -> None:
    """Compile Python files inside the image, bound to their content, as layers fix their times."""
    argv = ["python3", "-m", "compileall", "-q", "-f", "-j", str(os.cpu_count() or 1)]
    argv += ["--invalidation-mode", "unchecked-hash", *directories]
    # Some packages carry files for other Python versions: those do not compile, and need not.
    if over is None:
        attempt(["chroot", str(base), *argv], timeout=900)
    else:
        chroot.run([base], argv, write_to=over, check=False)


def strip(libraries: Iterable[Path]) -> None:
    """Drop symbols that only a debugger reads: a third of torch, two of vLLM's kernels."""
    for library in libraries:
        if attempt(["strip", "--strip-unneeded", str(library)]).returncode != 0:
            raise LabError(f"`strip` failed on {library.name}; is the package binutils installed?")


def _launcher(tree: Path, name: str, module: str, function: str) -> None:
    path = tree / "usr/local/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LAUNCHER.format(module=module, function=function))
    path.chmod(0o755)


def _pip(verb: str, *options: str, cache: Path) -> None:
    argv = [sys.executable, "-m", "pip", verb, "--quiet", "--cache-dir", str(cache)]
    argv += ["--root-user-action=ignore"] if verb == "install" else []
    run([*argv, "--disable-pip-version-check", *options], timeout=1800)


def _patterns(braces: str) -> list[str]:
    """`/usr/{a,b}/*` written out, as dpkg has no braces."""
    head, _, rest = braces.partition("{")
    names, _, tail = rest.partition("}")
    return [f"{head}{name}{tail}" for name in names.split(",")]
