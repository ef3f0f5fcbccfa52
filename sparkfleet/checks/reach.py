"""A host of which nothing could be read: its words, translated by rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkfleet.spec.finding import Finding

SUDO_PASSWORD = (
    "Run again with --same-sudo-password, which asks once for all hosts, or let the user sudo "
    "without a password there (a NOPASSWD line in /etc/sudoers.d)."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One way in which a host does not answer."""

    pattern: str
    """Regular expression over the raw text; case does not matter."""
    check: str
    what: str
    """`{host}` stands for the host's name."""
    why: str
    next: str


SUDO = (
    Row(
        r"a password is required|interactive authentication is required|a terminal is required",
        "sudo",
        "sudo on {host} wants a password, and none was given.",
        "Checking and changing a host takes root: Docker, systemd and the page cache ask for it.",
        SUDO_PASSWORD,
    ),
    Row(
        r"incorrect password attempt|sorry, try again|no password was provided",
        "sudo",
        "sudo on {host} did not accept the password that was given.",
        "Checking and changing a host takes root.",
        "Run again with --same-sudo-password and type the password of the SSH user; where the "
        "hosts have different ones, run them one by one with --limit.",
    ),
    Row(
        r"not in the sudoers file|may not run sudo|is not allowed to (execute|run sudo)",
        "sudo",
        "The SSH user on {host} is not allowed to use sudo.",
        "Checking and changing a host takes root.",
        "Add the user to the group sudo there (usermod -aG sudo USER), or name another user as "
        "ssh_user in the inventory.",
    ),
    Row(
        r"sudo(-rs)?: .*(not found|no such file)",
        "sudo",
        "There is no sudo on {host}.",
        "Checking and changing a host takes root.",
        "Install sudo there; DGX OS ships it.",
    ),
)

ROWS = (
    *SUDO,
    Row(
        r"python3: not found",
        "python",
        "There is no python3 on {host}.",
        "The check itself and the programs that watch the engine are Python; DGX OS ships 3.12.",
        "Install the distribution's python3 there, then run again.",
    ),
    Row(
        r"future feature annotations|'type' object is not subscriptable|python.*SyntaxError",
        "python",
        "python3 on {host} is older than 3.9; 3.11 or newer is needed.",
        "The check itself and the programs that watch the engine are Python; DGX OS ships 3.12.",
        "Bring the box to DGX OS 7 (Ubuntu 24.04) by its own update.",
    ),
    Row(
        r"host key for .* does not match|REMOTE HOST IDENTIFICATION",
        "host-key",
        "The SSH host key of {host} is not the one that is known for it.",
        "Either the box was reinstalled or its address now belongs to another machine: nothing is "
        "sent to a host that can't prove who it is.",
        "Compare the fingerprint on the box itself (ssh-keygen -lf "
        "/etc/ssh/ssh_host_ed25519_key.pub), then remove the old line from the known_hosts file.",
    ),
    Row(
        r"no host key for .* found in known_hosts|not found in known_hosts",
        "host-key",
        "The SSH host key of {host} is not known yet, and unknown keys are refused.",
        "The inventory asks for strict host key checking.",
        "Log in once by hand with ssh, compare the fingerprint, and accept it.",
    ),
    Row(
        r"system is (going down|booting up)|pam_nologin",
        "reachable",
        "{host} is just shutting down or booting, and lets nobody in yet.",
        "systemd refuses logins during that time.",
        "Run again in a minute or two; a firmware update takes about 15.",
    ),
    Row(
        r"banner|authentication timeout|no answer within|survey was cut off",
        "reachable",
        "{host} accepts connections but does not answer in time.",
        "A Spark that has run out of memory looks like this: ping answers, SSH never does, the "
        "journal stops.",
        "Wait a few minutes; if it stays so, power-cycle the box and look at what filled its "
        "memory.",
    ),
    Row(
        r"authentication (error|failed)|permission denied \(|no authentication methods|"
        r"private key file|invalid key",
        "login",
        "{host} refused the SSH login.",
        "User name and key are the inventory's ssh_user and ssh_key, or else those of your own "
        "SSH configuration.",
        "Check that `ssh` gets in by hand; the user name was chosen at the box's first boot.",
    ),
    Row(
        r"connection was lost|eof error|connection reset|broken pipe|channel closed",
        "reachable",
        "The SSH connection to {host} broke off during the check.",
        "The box went down, rebooted, or the network between lost it.",
        "See whether it is up, then run again: nothing had been changed.",
    ),
    Row(
        r"connection refused|errno 111",
        "reachable",
        "{host} is there, but nothing listens on its SSH port.",
        "A box that is still booting looks like this for a minute; else sshd is off or on another "
        "port.",
        "Wait for the boot, or set ssh_port in the inventory.",
    ),
    Row(
        r"resolve|name or service not known|nodename nor servname|getaddrinfo",
        "reachable",
        "The name {host} leads to no address.",
        "The inventory names hosts as your resolver knows them.",
        "Check the spelling, try NAME.local, or set ssh_hostname to the box's address.",
    ),
    Row(
        r"timed? ?out|no route to host|network is unreachable|host is down|errno 11[03]",
        "reachable",
        "{host} could not be reached.",
        "It is off, on another network, or its address has changed.",
        "Ping it from here; set ssh_hostname to its present address where that has changed.",
    ),
    Row(
        r"unable to connect to port",
        "reachable",
        "{host} did not accept a connection on its SSH port.",
        "It is off or still booting, sshd is on another port, or its address has changed.",
        "Ping it from here; set ssh_hostname or ssh_port where they have changed.",
    ),
)


def match(rows: tuple[Row, ...], raw: str) -> Row | None:
    """The first row whose pattern the raw text holds."""
    return next((row for row in rows if re.search(row.pattern, raw, re.IGNORECASE)), None)


def explain(host: str, raw: str) -> Finding:
    """The finding for a host that could not be read, whatever the reason."""
    row = match(ROWS, raw)
    if row is None:
        return Finding(
            "fail",
            host,
            "reachable",
            f"{host} could not be read: {quote(raw)}",
            "Nothing is known of the host, so nothing is done there.",
            "See whether `ssh` gets in by hand and `sudo true` works there.",
            raw,
        )
    return Finding("fail", host, row.check, row.what.format(host=host), row.why, row.next, raw)


def quote(raw: str) -> str:
    """The end of a sentence that quotes the host's own words."""
    return f"“{first_line(raw)}”."


def first_line(raw: str, limit: int = 200) -> str:
    """The first line that says something, cut to fit a sentence."""
    line = next((line.strip() for line in raw.splitlines() if line.strip()), "no reason given")
    return line if len(line) <= limit else line[: limit - 1] + "…"
