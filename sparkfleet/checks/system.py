"""The box itself: root, Python, architecture, clock, memory size, guards."""

from __future__ import annotations

from collections.abc import Iterator

from sparkfleet.checks.case import Case, Speaker
from sparkfleet.checks.reach import SUDO, match, quote
from sparkfleet.facts.host import Unknown
from sparkfleet.spec.finding import Finding

PYTHON_FLOOR = (3, 11)

SKEW_SECONDS = 300.0
"""A clock that is further off than this makes certificates and tokens fail."""

MEMORY_TOLERANCE = 0.05
"""A Spark reports 121.68 to 121.69 GiB; vLLM once saw 119.56. Anything 5% off is another box."""

GUARDS = ("earlyoom.service", "systemd-oomd.service")


def sudo(case: Speaker) -> Iterator[Finding]:
    """Root was had: by login, by sudo without a prompt, or with the password given."""
    if case.facts.privileged:
        yield case.ok("sudo", "sudo works.")
        return
    raw = case.facts.sudo_error or ""
    row = match(SUDO, raw)
    if row:
        yield case.fail("sudo", row.what.format(host=case.host), row.why, row.next, raw)
    else:
        yield case.fail(
            "sudo",
            f"sudo did not work on {case.host}: {quote(raw)}",
            "Checking and changing a host takes root.",
            "Try `sudo true` there by hand.",
            raw,
        )


def python(case: Speaker) -> Iterator[Finding]:
    """Python 3.11 or newer; DGX OS has 3.12."""
    found = tuple(int(part) for part in case.facts.python.split(".")[:2] if part.isdigit())
    if found >= PYTHON_FLOOR:
        yield case.ok("python", f"Python {case.facts.python}.")
        return
    floor = ".".join(str(part) for part in PYTHON_FLOOR)
    yield case.fail(
        "python",
        f"python3 on {case.host} is {case.facts.python}; {floor} or newer is needed.",
        "The programs that switch releases and watch the engine run on the host.",
        "Bring the box to DGX OS 7 (Ubuntu 24.04, Python 3.12) by its own update.",
    )


def arch(case: Case) -> Iterator[Finding]:
    """The architecture that the hardware profile names."""
    found, wanted = case.facts.arch, case.plan.hardware.arch
    if isinstance(found, Unknown):
        yield case.unknown("arch", "The architecture", found)
    elif found == wanted:
        yield case.ok("arch", f"Architecture {found}.")
    else:
        yield case.fail(
            "arch",
            f"{case.host} is {found}; hardware profile {case.plan.hardware.name} is {wanted}.",
            "The engine image is built for one architecture and does not start on another.",
            "Take the host out of the inventory, or name its own hardware profile.",
            found,
        )


def clock(case: Case) -> Iterator[Finding]:
    """The host's clock against ours."""
    skew = case.facts.time - case.facts.received
    if abs(skew) <= SKEW_SECONDS:
        yield case.ok("clock", "The clock agrees with ours.")
        return
    way = "ahead of" if skew > 0 else "behind"
    yield case.warn(
        "clock",
        f"The clock of {case.host} is {abs(skew) / 60:.0f} min {way} this machine's.",
        "Downloads over TLS and tokens fail on a wrong clock, and logs can't be compared.",
        "Switch time synchronization on there: timedatectl set-ntp true.",
    )


def memory_size(case: Case) -> Iterator[Finding]:
    """As much memory as the hardware profile says; swap is noted."""
    memory = case.facts.memory
    if isinstance(memory, Unknown):
        yield case.unknown("memory-size", "The memory", memory)
        return
    expected = case.plan.hardware.memory_gib
    swap = f"swap {memory.swap_kib / 2**20:.1f} GiB" if memory.swap_kib else "no swap"
    line = f"{memory.total_gib:.1f} GiB of memory, {swap}"
    if abs(memory.total_gib - expected) <= expected * MEMORY_TOLERANCE:
        yield case.ok("memory-size", f"{line}.")
        return
    yield case.warn(
        "memory-size",
        f"{case.host} reports {line}; {case.plan.hardware.name} has {expected:.1f} GiB.",
        "Presets are fractions of what the system reports, and were published for that size.",
        "Make sure that this is the box you mean, or name its own hardware profile.",
    )


def guard(case: Case) -> Iterator[Finding]:
    """Something that ends a process before the box hangs."""
    units = case.facts.units
    if isinstance(units, Unknown):
        yield case.unknown("memory-guard", "The state of the services", units)
        return
    active = [name for name in GUARDS if name in units and units[name].active == "active"]
    if active:
        yield case.ok("memory-guard", f"{active[0].removesuffix('.service')} is running.")
        return
    yield case.warn(
        "memory-guard",
        f"Nothing guards {case.host} against running out of memory.",
        "On unified memory that ends in a box that answers pings and nothing else until it is "
        "power-cycled.",
        "Install one there: apt install earlyoom (or systemd-oomd).",
    )
