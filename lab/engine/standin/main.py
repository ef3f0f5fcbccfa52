"""`vllm serve …`: boot as vLLM tells it in its log, then serve until told to stop."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import faults
from .app import Engine
from .args import Arguments, UsageError, parse

TAKEN = (
    "ValueError: Free memory on device cuda:0 (60.1/121.63 GiB) on startup is less than desired "
    "GPU memory utilization ({utilization}, {wanted:.2f} GiB). Decrease GPU memory utilization or "
    "reduce GPU memory used by other processes."
)
SKIPPED = "Parameter visual.blocks.0.attn.qkv.weight not found in params_dict, skip loading"
TOTAL_GIB = 121.63


def log(process: str, level: str, where: str, text: str) -> None:
    """One line in vLLM's format, on standard error as vLLM's."""
    now = time.strftime("%m-%d %H:%M:%S")
    print(f"({process} pid={os.getpid()}) {level} {now} [{where}] {text}", file=sys.stderr)


def boot(args: Arguments, fault: faults.Fault, version: str, seconds: float) -> None:
    """Write the markers of a boot over `seconds`; a fault of the boot ends or holds it here."""
    log("APIServer", "INFO", "api_utils.py:286", f"non-default args: {args.shown()}")
    if not Path(args.model).exists():
        log("APIServer", "ERROR", "api_server.py:1", f"OSError: {args.model} is not a local folder")
        raise SystemExit(1)
    if fault.name == "exit0":
        raise SystemExit(0)
    utilization = float(args.one("gpu-memory-utilization", "0.92"))
    if fault.name == "crash":
        wanted = TAKEN.format(utilization=utilization, wanted=utilization * TOTAL_GIB)
        log("EngineCore", "ERROR", "core.py:900", wanted)
        log("APIServer", "ERROR", "core_client.py:1", "RuntimeError: Engine core init failed.")
        raise SystemExit(int(fault.number))
    seconds = fault.number if fault.name == "slow" else seconds
    eager = args.has("enforce-eager")
    configuration = f"model={args.model!r}, max_seq_len={args.one('max-model-len', '4096')}, "
    configuration += f"enforce_eager={eager}, served_model_name={args.names[0]}"
    steps = [
        ("core.py:133", f"Initializing a V1 LLM engine (v{version}) with config: {configuration}"),
        ("gpu_model_runner.py:1", f"Starting to load model {args.model}..."),
        ("default_loader.py:501", "Loading weights took 1.00 seconds"),
        ("gpu_model_runner.py:2", "Model loading took 21.8 GiB memory and 1.2 seconds"),
        ("kv_cache_utils.py:2327", "GPU KV cache size: 4,194,304 tokens"),
        ("core.py:402", "init engine (profile, create kv cache, warmup model) took 1.00 s"),
    ]
    for where, text in steps:
        time.sleep(seconds / len(steps))
        log("EngineCore", "INFO", where, text)
        if fault.name == "forbidden-log" and text.startswith("Loading weights"):
            log("EngineCore", "WARNING", "qwen3_5.py:1", SKIPPED)
        if fault.name == "never-ready" and text.startswith("Model loading"):
            threading.Event().wait()


def guarded(app: Any, middleware: list[str]) -> Any:
    """The application behind its middleware, loaded and stacked as vLLM does."""
    for name in middleware:
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        if not inspect.isclass(found):
            raise UsageError(f"Invalid middleware {name}. Must be a class in the stand-in.")
        wrap: Any = found
        app = wrap(app)
    return app


def main() -> int:
    """Run; returns the exit status of an orderly stop."""
    import uvicorn  # type: ignore[import-not-found,unused-ignore]

    version = os.environ.get("SPARKFLEET_STANDIN_VERSION", "1.0.0")
    try:
        args = parse(sys.argv[1:])
        fault = faults.at_boot(args.model)
        boot(args, fault, version, float(os.environ.get("SPARKFLEET_STANDIN_BOOT", "1")))
        drafting = json.loads(args.one("speculative-config", "{}"))
        engine = Engine(
            args.names,
            version=version,
            drafts=int(drafting.get("num_speculative_tokens", 0)),
            thinks=args.has("reasoning-parser"),
            keys=tuple(args.many("api-key")),
            rate=float(os.environ.get("SPARKFLEET_STANDIN_RATE", "100")),
            max_model_len=int(args.one("max-model-len", "262144")),
            boot_fault=fault,
            on_death=os._exit,
        )
        app = guarded(engine, args.many("middleware"))
    except (UsageError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 2
    host, port = args.one("host", "0.0.0.0"), int(args.one("port", "8000"))
    log("APIServer", "INFO", "entry.py:140", f"Starting vLLM server on http://{host}:{port}")
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            lifespan="on",
            timeout_graceful_shutdown=int(float(args.one("shutdown-timeout", "0"))),
        )
    )
    # uvicorn would raise the signal again when it is done; vLLM ends with status 0.
    server.capture_signals = contextlib.nullcontext
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run()
    return 0
