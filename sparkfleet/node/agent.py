"""The resident of a Spark: proves each engine after a start, and restarts one that is wedged.

    python3 agent.py --root /var/lib/sparkfleet [--answer llm=10.0.0.5:18000 --gateways 1]

One thread per service, each looking every few seconds: at Docker over its socket and at the engine
over HTTP. Nothing is spawned for a look while the engine runs. It writes state.json and prints a
sentence to the journal whenever something changed. It keeps away from a service whose switch is
under way, and ends a switch that was cut. With gateways in the inventory it tells each that asks
whether to send requests here (answer.py); without, it listens nowhere.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node import answer
from sparkfleet.node.disk import remove
from sparkfleet.node.faults import OK
from sparkfleet.node.layout import Service, services
from sparkfleet.node.steps import Means
from sparkfleet.node.watch import SELDOM, Watch


def serve(
    root: Path,
    means: Means,
    stop: threading.Event,
    say: Callable[[str], None],
    posts: tuple[answer.Post, ...] = (),
    gateways: int = 0,
    interval: float = 1.0,
) -> None:
    """Watch every service below `root`, new ones too, until `stop`; answer at the `posts`."""
    threads: dict[str, threading.Thread] = {}
    watches: dict[str, Watch] = {}
    for service in services(root, means.run_dir):
        if service.name not in {post.service for post in posts}:
            remove(service.heard)  # of an inventory that had gateways
    if posts:
        answerer = answer.Answerer(
            posts,
            interval,
            gateways,
            find=lambda name: Service(root, name, means.run_dir),
            known=lambda name: is_known(watches, name),
            say=say,
        )
        answerer.begin()
        threading.Thread(target=answerer.serve, args=(stop,), daemon=True).start()
    while not stop.is_set():
        for service in services(root, means.run_dir):
            if service.name not in threads or not threads[service.name].is_alive():
                watch = watches[service.name] = Watch(service, means, say)
                thread = threading.Thread(target=_follow, args=(watch, stop), daemon=True)
                threads[service.name] = thread
                thread.start()
        stop.wait(SELDOM)


def is_known(watches: dict[str, Watch], name: str) -> bool:
    """Whether the state on disk holds for what runs: before the first look it is hearsay."""
    watch = watches.get(name)
    return watch is not None and watch.looked


def _follow(watch: Watch, stop: threading.Event) -> None:
    while not stop.is_set() and watch.service.dir.is_dir():
        stop.wait(watch.look())


def main(argv: list[str]) -> int:
    """The program; SIGTERM ends it."""
    parser = argparse.ArgumentParser(description="Prove and watch the engines of this host.")
    parser.add_argument("--root", type=Path, default=Path("/var/lib/sparkfleet"))
    parser.add_argument(
        "--answer",
        type=answer.Post.parse,
        action="append",
        default=[],
        metavar="SERVICE=ADDRESS:PORT",
        help="where gateways ask for a service",
    )
    parser.add_argument("--gateways", type=int, default=0, help="how many there are")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between questions")
    options = parser.parse_args(argv)
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda number, frame: stop.set())
    print(f"Watching the services below {options.root}.", flush=True)
    serve(
        options.root,
        Means(),
        stop,
        lambda text: print(text, flush=True),
        tuple(options.answer),
        options.gateways,
        options.interval,
    )
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
