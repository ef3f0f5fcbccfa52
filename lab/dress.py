"""The files that make a plain Debian root look like a Spark. Pure: path → file."""

from __future__ import annotations

import json
import textwrap
import uuid
from dataclasses import dataclass
from pathlib import Path

from lab.settings import Settings

#: MemTotal of a Spark (facts from the field: 127,598,608 to 127,601,452 kB).
MEMORY_TOTAL_KIB = 127_600_812
#: What an idle headless Spark has left, about 118 GiB.
MEMORY_AVAILABLE_KIB = 118 * 1024 * 1024
USER = "spark"
OWNER_LABEL = "owner.example/asset=rack-7"
SUDOERS_OPEN = f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n"
#: Without a remembered sudo, so that a test sees the password asked for each time.
SUDOERS_PASSWORD = f"Defaults:{USER} timestamp_timeout=0\n{USER} ALL=(ALL:ALL) ALL\n"


@dataclass(frozen=True)
class File:
    """A file of a host: its content, mode and owner (uid and gid alike)."""

    content: str
    mode: int = 0o644
    owner: int = 0


def unit(text: str) -> File:
    return File(textwrap.dedent(text).lstrip())


def meminfo(
    available_kib: int = MEMORY_AVAILABLE_KIB,
    total_kib: int = MEMORY_TOTAL_KIB,
    swap_kib: int = 0,
) -> str:
    """/proc/meminfo of a Spark; every figure in KiB, which the kernel writes as kB."""
    cached = min(4_000_000, available_kib // 2)
    used = total_kib - available_kib
    # All the names that programs insist on: earlyoom ends where AnonPages is missing.
    rows = {
        "MemTotal": total_kib,
        "MemFree": available_kib - cached,
        "MemAvailable": available_kib,
        "Buffers": 0,
        "Cached": cached,
        "SwapCached": 0,
        "Active": used + cached // 2,
        "Inactive": cached - cached // 2,
        "Active(anon)": used,
        "Inactive(anon)": 0,
        "Active(file)": cached // 2,
        "Inactive(file)": cached - cached // 2,
        "Unevictable": 0,
        "Mlocked": 0,
        "SwapTotal": swap_kib,
        "SwapFree": swap_kib,
        "Dirty": 0,
        "Writeback": 0,
        "AnonPages": used,
        "Mapped": 400_000,
        "Shmem": 0,
        "KReclaimable": 200_000,
        "Slab": 400_000,
        "SReclaimable": 200_000,
        "SUnreclaim": 200_000,
        "KernelStack": 10_000,
        "PageTables": 20_000,
        "CommitLimit": total_kib // 2 + swap_kib,
        "Committed_AS": used,
        "VmallocTotal": 34_359_738_367,
        "VmallocUsed": 100_000,
        "VmallocChunk": 0,
        "Hugepagesize": 2048,
    }
    return "".join(f"{key + ':':<16}{value:>9} kB\n" for key, value in rows.items())


def gpu(name: str) -> dict[str, object]:
    """/etc/lab/gpu.json of an ordinary GB10; the keys are explained in files/nvidia-smi."""
    return {
        "state": "ok",
        "name": "NVIDIA GB10",
        "driver": "580.142",
        "cuda": "13.0",
        "compute_cap": "12.1",
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}",
        "memory_mib": None,
    }


def dgx_release(name: str) -> str:
    """/etc/dgx-release: the OTA version is repeated; the serial number is not to be logged."""
    serial = f"SN-LAB-{uuid.uuid5(uuid.NAMESPACE_DNS, name + '.serial').hex[:10].upper()}"
    return textwrap.dedent(f"""\
        DGX_NAME="DGX Spark"
        DGX_PRETTY_NAME="NVIDIA DGX Spark"
        DGX_SWBUILD_DATE="2025-09-10-13-50-03"
        DGX_SWBUILD_VERSION="7.2.3"
        DGX_COMMIT_ID="833b4a7"
        DGX_PLATFORM="DGX Server for KVM"
        DGX_SERIAL_NUMBER="{serial}"

        DGX_OTA_VERSION="7.3.1"
        DGX_OTA_DATE="Di 11. Nov 09:12:44 CET 2025"

        DGX_OTA_VERSION="7.4.0"
        DGX_OTA_DATE="Mi 4. Feb 18:03:10 CET 2026"
        """)


def common() -> dict[str, File]:
    """Files that all hosts share; they go into one layer over the Debian root."""
    files = Path(__file__).parent / "files"
    return {
        "/usr/lib/lab/nvidia-smi": File((files / "nvidia-smi").read_text(), 0o755),
        "/etc/lab/meminfo": File(meminfo()),
        f"/etc/sudoers.d/{USER}": File(SUDOERS_OPEN, 0o440),
        "/etc/resolv.conf": File("# The lab has no name service.\n"),
        "/etc/ssh/sshd_config.d/lab.conf": unit("""
            # VERBOSE lists each session, which is how the tests count remote commands.
            LogLevel VERBOSE
            UseDNS no
            # DGX OS has OpenSSH 9.6, which does not shut out an address for failed logins.
            PerSourcePenalties no
            PasswordAuthentication no
            HostKey /etc/ssh/ssh_host_ed25519_key
            """),
        "/etc/systemd/journald.conf.d/lab.conf": unit("""
            [Journal]
            Storage=persistent
            SystemMaxUse=64M
            RateLimitIntervalSec=0
            """),
        "/etc/systemd/system/lab-meminfo.service": unit("""
            [Unit]
            Description=Spark-sized memory figures
            DefaultDependencies=no
            Before=sysinit.target

            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/bin/mount --bind /etc/lab/meminfo /proc/meminfo

            [Install]
            WantedBy=sysinit.target
            """),
        "/etc/systemd/system/lab-proc-sys.service": unit("""
            [Unit]
            Description=Writable /proc/sys, so that the page cache can be dropped
            After=systemd-sysctl.service

            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/bin/mount -o remount,rw,bind /proc/sys

            [Install]
            WantedBy=multi-user.target
            """),
    }


def daemon_json(settings: Settings) -> str:
    """Docker's settings as an owner might have them: the toolkit's runtime must be merged in."""
    return json.dumps(
        {
            "insecure-registries": [settings.registry],
            "labels": [OWNER_LABEL],
            "max-concurrent-downloads": 4,
            "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
        },
        indent=4,
    )


def of_host(
    settings: Settings, name: str, names: list[str], keys: dict[str, str]
) -> dict[str, File]:
    """Files of one host. `keys` holds its secret and public host key and the client's public key.

    `names` are all hosts that may exist, for /etc/hosts.
    """
    known = "".join(f"{settings.address(other)} {other}\n" for other in names)
    return {
        "/etc/hostname": File(f"{name}\n"),
        "/etc/hosts": File(
            f"127.0.0.1 localhost\n127.0.1.1 {name}\n{settings.gateway} lab registry.lab hub.lab\n"
            + known
        ),
        "/etc/machine-id": File(uuid.uuid5(uuid.NAMESPACE_DNS, name + ".lab").hex + "\n", 0o444),
        "/etc/dgx-release": File(dgx_release(name)),
        "/etc/lab/gpu.json": File(json.dumps(gpu(name), indent=2) + "\n"),
        "/etc/ssh/ssh_host_ed25519_key": File(keys["host"], 0o600),
        "/etc/ssh/ssh_host_ed25519_key.pub": File(keys["host.pub"]),
        f"/home/{USER}/.ssh/authorized_keys": File(keys["client.pub"], 0o600, 1000),
        "/etc/docker/daemon.json": File(daemon_json(settings) + "\n"),
        "/etc/apt/sources.list.d/lab.list": File(f"deb [trusted=yes] {settings.apt} ./\n"),
        "/etc/systemd/network/10-host0.network": unit(f"""
            [Match]
            Name=host0

            [Network]
            Address={settings.address(name)}/24
            LinkLocalAddressing=no
            IPv6AcceptRA=no
            """),
    }
