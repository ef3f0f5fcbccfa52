"""Across hosts: cloned disks, and one box under two names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparkfleet.facts.host import HostFacts, Unknown
from sparkfleet.spec.finding import Finding


def machine_id(facts: HostFacts) -> tuple[str, ...]:
    """The machine id's digest, where there is one."""
    known = facts.machine_id
    return (known,) if isinstance(known, str) and known else ()


def host_keys(facts: HostFacts) -> tuple[str, ...]:
    """Fingerprints of the SSH host keys."""
    return () if isinstance(facts.host_keys, Unknown) else tuple(facts.host_keys.values())


def boot_id(facts: HostFacts) -> tuple[str, ...]:
    """The id of this boot of this machine."""
    return (facts.boot_id,) if isinstance(facts.boot_id, str) and facts.boot_id else ()


def twins(fleet: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Hosts that share what should be each host's own."""
    same_box = set()
    for names in shared(fleet, lambda facts: boot_id(facts) and machine_id(facts)):
        if same_boot(fleet, names):
            same_box.add(names)
            yield row("fail", names, ONE_BOX)
    for names in shared(fleet, machine_id):
        if names not in same_box:
            yield row("warn", names, MACHINE_ID)
    for names in shared(fleet, host_keys):
        if names not in same_box:
            yield row("warn", names, HOST_KEY)


ONE_BOX = (
    "same-box",
    "{names} are one and the same machine: same boot, same machine id.",
    "Two names for one box would each deploy to it, and fight over its memory.",
    "Keep one of the names in the inventory.",
)
MACHINE_ID = (
    "machine-id",
    "{names} have the same machine id.",
    "Their disks were cloned: addresses by DHCP, logs and licences will mix them up.",
    "On all but one: rm /etc/machine-id; systemd-machine-id-setup; reboot.",
)
HOST_KEY = (
    "ssh-host-key",
    "{names} have the same SSH host key.",
    "Their disks were cloned: one can pass for the other, and a changed address goes unnoticed.",
    "On all but one: rm /etc/ssh/ssh_host_*; dpkg-reconfigure openssh-server; then renew the "
    "known_hosts entries.",
)


def shared(
    fleet: Mapping[str, HostFacts], marks: Callable[[HostFacts], tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Groups of hosts that have a mark in common, each group once."""
    groups: dict[str, list[str]] = {}
    for name, facts in fleet.items():
        for mark in marks(facts):
            groups.setdefault(mark, []).append(name)
    return list(dict.fromkeys(tuple(group) for group in groups.values() if len(group) > 1))


def same_boot(fleet: Mapping[str, HostFacts], names: tuple[str, ...]) -> bool:
    """Whether hosts share the boot as well: a clone has a boot of its own."""
    return len({fleet[name].boot_id for name in names}) == 1


def row(level: str, names: tuple[str, ...], text: tuple[str, str, str, str]) -> Finding:
    """One finding for a group, under its first host."""
    check, what, why, next_step = text
    both = " and ".join(names)
    return Finding(
        "fail" if level == "fail" else "warn",
        names[0],
        check,
        what.format(names=both),
        why,
        next_step,
    )
