"""What Docker's words on a failed pull mean: rows of marks, code, meaning and next step."""

from __future__ import annotations

from sparkfleet.node.faults import Fault

#: Words in Docker's message, the code, what they mean and the next step; the first that fits.
MEANINGS = (
    (("no space left", "disk quota exceeded"), "disk-full", "The disk is full.",
     "Free some space where Docker keeps its images, then run the same command again."),
    (("no matching manifest",), "platform", "The image is not built for this machine.",
     "Look at the recipe's hardware and image."),
    (("unauthorized", "authentication required", "denied", "no basic auth"), "auth",
     "The registry wants a login, or the image does not exist.",
     "Compare the reference letter by letter; for a private image run docker login as root there."),
    (("toomanyrequests", "too many requests", "status: 429"), "rate-limited",
     "The registry was asked too often.", "Wait a while, then run the same command again."),
    (("manifest unknown", "manifest for", "not found", "name unknown", "invalid reference"),
     "digest-absent", "The registry has no such image (any more).",
     "Compare the reference letter by letter; pin the recipe anew if the publisher removed it."),
    (("connection refused", "no such host", "i/o timeout", "tls handshake",
      "network is unreachable", "connection reset", "eof", "deadline exceeded", "canceled",
      "bad gateway", "server misbehaving", "service unavailable", "unexpected status",
      "server error", "dial tcp", "no route to host", "http response to https"),
     "registry-down", "The registry can't be reached from this host, or has a fault.",
     "Look at the registry and the host's network, then run the same command again."),
)  # fmt: skip


def refusal(reference: str, words: str) -> Fault:
    """The fault behind Docker's message on a pull."""
    lower = words.lower().replace(reference.lower(), "")  # a digest may hold any letters
    fitting = (row[1:] for row in MEANINGS if any(mark in lower for mark in row[0]))
    code, why, step = next(fitting, ("pull", "", "Look at `journalctl -u docker` on the host."))
    return Fault(
        "The image could not be pulled.",
        where=reference,
        why=f"{why} Docker says: {words}".strip(),
        next=step,
        code=code,
    )
