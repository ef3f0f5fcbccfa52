"""The one command that surveys a host, whatever is, or is not, installed there.

The programs travel inside the command: nothing has to be copied first, and nothing is left behind.
They go through standard input, compressed, so that neither a limit on arguments, nor quoting, nor
sudo's log of command lines is in the way. The text holds no single quote and no newline, which is
what makes it survive any login shell and pyinfra's own wrapping.
"""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

#: In the order in which they import each other.
MODULES = ("survey_host", "survey_gpu", "survey_docker", "survey_fleet", "survey_gateway", "survey")

#: Seconds after which the host itself ends the survey, beyond the survey's own deadline.
MARGIN = 5

DEADLINE = 15
"""Seconds that the survey gives its slowest answer before it goes on without it."""

_LOADER = """
import sys, types
for name, source in SOURCES:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    exec(compile(source, name, "exec"), module.__dict__)
"""

# Line 1: the programs. Line 2: the request. The rest: what sudo said when it refused.
_BOOT = (
    "import sys,json,zlib,base64;"
    "unpack=lambda:zlib.decompress(base64.b64decode(sys.stdin.readline()));"
    "exec(unpack());"
    "request=json.loads(unpack());"
    "request.update(sudo_error=sys.stdin.read().strip());"
    "sys.modules[str(name)].main(request)"
)

NO_PYTHON = '{"schema":1,"python":null}'
"""Printed where the host has no python3."""


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@cache
def _programs() -> str:
    sources = [("sparkfleet", ""), ("sparkfleet.node", "")]
    for module in MODULES:
        source = files("sparkfleet.node").joinpath(f"{module}.py").read_text("utf-8")
        sources.append((f"sparkfleet.node.{module}", source))
    return _packed(f"SOURCES = {sources!r}\n{_LOADER}")


def survey_command(request: Mapping[str, Any]) -> str:
    """The shell command that prints the survey as its last line of JSON and exits with 0.

    Run as root, it reads everything. Run as the owner, it makes itself root where sudo asks for no
    password, and else reads what the owner may see, with sudo's refusal in the answer.
    """
    asked = {"deadline": DEADLINE, **request}
    limit = int(asked["deadline"]) + MARGIN
    lines = f'{_programs()} {_packed(json.dumps(asked))} "$refused"'
    # sudo is asked once, with the survey itself: each login through PAM costs 20 ms. A survey that
    # timeout(1) ended (124, 137) was not refused and is not begun again.
    script = (
        "exec 2>&1; refused=; "
        f'go() {{ printf "%s\\n" {lines} 2>/dev/null '
        f'| "$@" timeout -k 2 {limit} python3 -I -S -c "{_BOOT}" 2>&1; }}; '
        'if ! command -v python3 >/dev/null; then printf "%s\\n" '
        f"{json.dumps(NO_PYTHON)}; "
        'elif [ "$(id -u)" = 0 ]; then go; '
        'else said="$(go sudo -n -H)"; '
        'case $? in 0|124|137) printf "%s\\n" "$said";; *) refused="$said"; go;; esac; '
        "fi; exit 0"
    )
    assert "'" not in script and "\n" not in script
    return f"sh -c {shlex.quote(script)}"
