"""GPU and driver. The driver is never touched, and never suggested to be installed blindly: on a
Spark it comes with the firmware, and a plain package upgrade is what tears the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparkfleet.checks.case import Case
from sparkfleet.checks.reach import quote
from sparkfleet.facts.host import Gpu, GpuDevice, Unknown
from sparkfleet.spec.finding import Finding

UPDATE = (
    "Bring driver and firmware back together with the vendor's own update (DGX Dashboard, or its "
    "system recovery), then reboot; sparkfleet never touches the driver."
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which nvidia-smi says that the driver is broken."""

    pattern: str
    what: str
    why: str


FAULTS = (
    Fault(
        r"no devices were found|no devices found",
        "The driver on {host} is loaded but finds no GPU (“No devices were found”).",
        "A package upgrade has torn the driver from the firmware; Xid 119 in the kernel's log is "
        "the same fault.",
    ),
    Fault(
        r"driver/library version mismatch",
        "Kernel module and library of the driver on {host} have different versions.",
        "A package upgrade has replaced one while the other is still loaded.",
    ),
    Fault(
        r"couldn't communicate with the nvidia driver|nvidia driver is not loaded",
        "The driver's kernel module is not loaded on {host}.",
        "The running kernel has no module, often after a kernel upgrade.",
    ),
    Fault(
        r"gpu requires reset|gpu is lost|fallen off the bus|unknown error",
        "The GPU of {host} has crashed and wants a reset.",
        "The driver lost contact with it; the kernel's log has the Xid.",
    ),
)


def gpu(case: Case) -> Iterator[Finding]:
    """The GPU answers, has the right compute capability, and its driver is new enough."""
    found = case.facts.gpu
    if isinstance(found, Unknown):
        yield case.unknown("gpu", "The GPU", found)
        return
    if found.devices:
        for device in found.devices:
            yield from capability(case, device, found.out)
        yield from driver(case, found.devices[0], found)
    else:
        yield broken(case, found)


def broken(case: Case, found: Gpu) -> Finding:
    """Why nvidia-smi lists no GPU."""
    if not found.tool:
        what = f"There is no NVIDIA driver on {case.host}: nvidia-smi is missing."
        if found.module:
            what = f"nvidia-smi is missing on {case.host}, though driver {found.module} is loaded."
        why = "The engine needs the GPU, and DGX OS ships its driver."
        return case.fail("driver", what, why, UPDATE)
    if found.rc is None:
        return case.fail(
            "driver",
            f"nvidia-smi hangs on {case.host}: {found.err}.",
            "A driver that does not answer will not start an engine either.",
            "Power-cycle the box; if it hangs again, see its kernel log for Xid lines.",
            found.said,
        )
    for fault in FAULTS:
        if re.search(fault.pattern, found.said, re.IGNORECASE):
            what = fault.what.format(host=case.host)
            xid = f" The kernel's log says {quote(found.xid[-1])}" if found.xid else ""
            return case.fail("driver", what, fault.why + xid, UPDATE, found.said)
    return case.unknown("driver", "The GPU", found.said or f"nvidia-smi ended with {found.rc}")


def capability(case: Case, device: GpuDevice, raw: str) -> Iterator[Finding]:
    """Compute capability is the safe key: the name may be a code name, and memory is `[N/A]`."""
    wanted = case.plan.hardware.compute_capability
    if device.compute_capability is None:
        yield case.unknown("gpu", "The GPU's compute capability", raw)
    elif device.compute_capability == wanted:
        yield case.ok("gpu", f"{device.name}, compute capability {wanted}.", raw)
    else:
        yield case.fail(
            "gpu",
            f"The GPU of {case.host} is {device.name} with compute capability "
            f"{device.compute_capability}; {case.plan.hardware.name} has {wanted}.",
            "The engine image is compiled for that capability alone and runs on no other GPU "
            "without a rebuild.",
            "Take the host out of the inventory.",
            raw,
        )


def driver(case: Case, device: GpuDevice, found: Gpu) -> Iterator[Finding]:
    """The driver's branch against the hardware profile's floor and supported branches."""
    rules = case.plan.hardware.driver
    branch = re.match(r"\d+", device.driver or "")
    if device.driver is None or branch is None:
        yield case.unknown("driver", "The driver's version", found.out)
        return
    supported = ", ".join(str(number) for number in rules.supported)
    if int(branch[0]) < rules.floor:
        yield case.fail(
            "driver",
            f"The driver of {case.host} is {device.driver}; {rules.floor} or newer is needed.",
            f"The recipe's engine was published for branch {supported}.",
            UPDATE,
            found.out,
        )
    elif int(branch[0]) not in rules.supported:
        yield case.warn(
            "driver",
            f"The driver of {case.host} is {device.driver}, outside the supported branch "
            f"{supported}.",
            "The vendor does not support newer branches on this hardware yet.",
            "Go on if it works for you; on trouble, go back by the vendor's own update.",
            found.out,
        )
    else:
        yield case.ok("driver", f"Driver {device.driver}.", found.out)
