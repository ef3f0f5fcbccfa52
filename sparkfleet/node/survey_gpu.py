"""The GPU, its driver, and the container toolkit: raw outputs, judged elsewhere.

Nothing here is interpreted: `nvidia-smi` on a GB10 prints `[N/A]` for memory with exit status 0,
some boxes print a code name, and a torn driver prints "No devices were found".
"""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path
from typing import Any

from sparkfleet.node.survey_host import SEARCH_PATH, program, text_or_none

QUERY = (
    "--query-gpu=name,driver_version,compute_cap,memory.total",
    "--format=csv,noheader,nounits",
)

#: Seconds for nvidia-smi. It takes 0.1 to 2 s on a healthy box; a torn driver can hang it for ever.
SMI_TIMEOUT = 10.0

TOOLKIT = "nvidia-container-toolkit"


def run(argv: list[str], timeout: float) -> dict[str, Any]:
    """Run one program without input; return its exit status, output and errors as text."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": SEARCH_PATH}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"rc": None, "out": "", "err": f"{argv[0]} did not answer within {timeout:.1f} s"}
    except OSError as error:
        return {"rc": None, "out": "", "err": f"{argv[0]} could not be started: {error}"}
    return {
        "rc": done.returncode,
        "out": done.stdout.decode("utf-8", "backslashreplace").strip(),
        "err": done.stderr.decode("utf-8", "backslashreplace").strip(),
    }


def gpu(request: dict[str, Any]) -> dict[str, Any]:
    """What nvidia-smi says, the loaded kernel module, and GPU faults from the kernel's log."""
    module = text_or_none("/sys/module/nvidia/version")
    tool = program("nvidia-smi")
    if tool is None:
        return {"tool": False, "module": module}
    # Ended in time by us, or else it would outlive the survey.
    said = run([tool, *QUERY], min(SMI_TIMEOUT, request.get("deadline", SMI_TIMEOUT) * 0.7))
    healthy = said["rc"] == 0 and "," in said["out"]
    return {"tool": True, **said, "module": module, "xid": [] if healthy else xid_lines()}


def xid_lines(limit: int = 5) -> list[str]:
    """The last GPU fault lines (`NVRM: Xid …`) of the kernel's log; empty without permission."""
    found: list[str] = []
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return found
    try:
        while True:
            record = os.read(log, 8192).decode("utf-8", "backslashreplace")
            if "NVRM:" in record:
                found.append(record.partition(";")[2].splitlines()[0])
    except OSError:  # no more records (EAGAIN), or they were overwritten while we read
        return found[-limit:]
    finally:
        os.close(log)


def toolkit(request: dict[str, Any]) -> dict[str, Any]:
    """The container toolkit's package and programs."""
    return {
        "package": package_version(TOOLKIT) is not None,
        "version": package_version(TOOLKIT),
        "hook": program("nvidia-container-runtime-hook"),
        "runtime": program("nvidia-container-runtime"),
        "ctk": program("nvidia-ctk"),
    }


def package_version(name: str, status: str = "/var/lib/dpkg/status") -> str | None:
    """Version of an installed Debian package, from dpkg's own file; None where it isn't one."""
    try:
        with Path(status).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # not a Debian system; an empty file
        return None
    with content:
        begin = content.find(f"Package: {name}\n".encode())
        while begin > 0 and content[begin - 1] != ord("\n"):
            begin = content.find(f"Package: {name}\n".encode(), begin + 1)
        if begin < 0:
            return None
        end = content.find(b"\n\n", begin)
        stanza = content[begin : end if end >= 0 else len(content)].decode("utf-8", "replace")
    fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
    return fields.get("Version") if fields.get("Status", "").endswith(" installed") else None
