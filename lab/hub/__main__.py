"""`python -m lab.hub --bind ADDR --port 8090 --data DIR`: run the hub stand-in until stopped."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from lab.hub.server import Hub


def main() -> int:
    """Serve until SIGTERM or SIGINT; prints one line when both ports answer."""
    parser = argparse.ArgumentParser(prog="python -m lab.hub", description=__doc__)
    parser.add_argument("--bind", default="127.0.0.1", help="address to answer on")
    parser.add_argument("--port", type=int, default=8090, help="the hub's port (0: any free one)")
    parser.add_argument("--cdn-port", type=int, help="port of large files (default: port + 1)")
    parser.add_argument("--data", type=Path, required=True, help="directory of the repositories")
    args = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        hub = Hub(args.data, args.bind, args.port, args.cdn_port)
    except OSError as error:
        parser.exit(1, f"The hub stand-in can't listen on {args.bind}:{args.port}: {error}.\n")
    hub.start()
    print(f"hub {hub.endpoint} content-port {hub.cdn_port} data {args.data}", flush=True)
    stopped.wait()
    hub.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
