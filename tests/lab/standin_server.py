"""An engine that behaves as its environment says: what a real one will not do on demand.

BEHAVIOUR (JSON): boot (seconds until it listens), die_at (seconds; then it exits with `exit`),
answer (the text of every completion), log (lines printed at once). Asking /wedge makes it report
one running request and no more tokens, for good. A file `doom` beside it makes it die at once.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BEHAVIOUR = json.loads(os.environ.get("BEHAVIOUR", "{}"))
TOKENS = [0]
WEDGED = threading.Event()


class Routes(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, value: object) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/wedge":
            WEDGED.set()
        running = 1 if WEDGED.is_set() else 0
        self.answer(
            {
                "/v1/models": {"data": [{"id": "fast"}]},
                "/version": {"version": BEHAVIOUR.get("version", "1.0")},
                "/metrics": f"vllm:num_requests_running {running}\n"
                f"vllm:generation_tokens_total {TOKENS[0]}\n"
                f"vllm:spec_decode_num_draft_tokens_total {TOKENS[0]}\n"
                f"vllm:spec_decode_num_accepted_tokens_total {TOKENS[0]}\n",
            }.get(self.path, "")
        )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        TOKENS[0] += 10
        message = {"content": BEHAVIOUR.get("answer", "391")}
        self.answer({"choices": [{"message": message, "finish_reason": "stop"}]})

    def log_message(self, format: str, *args: object) -> None:
        pass


def die() -> None:
    time.sleep(BEHAVIOUR["die_at"])
    os._exit(BEHAVIOUR.get("exit", 1))


if Path(__file__).with_name("doom").exists():
    sys.exit("ValueError: doom")
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
for line in ["non-default args: {}", *BEHAVIOUR.get("log", [])]:
    print(line, flush=True)
if "die_at" in BEHAVIOUR:
    threading.Thread(target=die, daemon=True).start()
time.sleep(BEHAVIOUR.get("boot", 0))
print("Application startup complete.", flush=True)
ThreadingHTTPServer(("0.0.0.0", 8000), Routes).serve_forever()
