"""Why a release did not come to serve, and how that is said to the owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkfleet.node.boot import Boot
from sparkfleet.node.faults import Fault


class Failed(Exception):
    """The release did not come to serve: in which phase, why, and the log's telling lines."""

    def __init__(self, phase: str, detail: str, log: tuple[str, ...] = (), next: str = "") -> None:
        super().__init__(detail)
        self.phase, self.detail, self.log, self.next = phase, detail, log, next

    def as_dict(self) -> dict[str, Any]:
        """For the outcome and for disk."""
        log = list(self.log)
        return {"phase": self.phase, "detail": self.detail, "log": log, "next": self.next}


def failed(phase: str, error: Exception) -> Failed:
    """Any foreseeable fault of a step as a failure of `phase`."""
    if isinstance(error, Failed):
        return error
    if not isinstance(error, Fault):
        return Failed(phase, f"{error}.")
    where = f" ({error.where})" if error.where else ""
    return Failed(phase, f"{error.what} {error.why}{where}".strip(), next=error.next)


_BOOT_NEXT = {
    "dead": "Its last lines below say why; mend that, then run the deploy again.",
    "late": "If its last lines below show that it was only slow, raise boot.timeout_minutes in the "
    "recipe; then run the deploy again.",
}


def failed_boot(boot: Boot) -> Failed:
    """A boot that ended otherwise than ready, in the recipe's words where it knows the line."""
    tales = boot.telling
    next_step = tales.next or _BOOT_NEXT.get(boot.outcome, "")
    return Failed("boot", f"{boot.detail} {tales.meaning}".strip(), tales.lines, next_step)


_PROOF_NEXT = {
    "alive": "Its last lines below say why; mend that, then run the deploy again.",
    "version": "Correct the recipe's version, or name the image that holds it.",
    "names": "Correct served-model-name in the recipe.",
    "drafts": "See in the engine's log whether the drafter was loaded; one that was made for "
    "another model is never accepted.",
    "log": "Mend what that line tells of: another image, or newer weights (pin them anew).",
}
_SILENT_NEXT = (
    "Its last lines below may show where it hangs; if it was only slow, raise proof_timeout in the "
    "recipe."
)
_ANSWER_NEXT = "Compare image, weights and flags with what the recipe was published with."


def failed_proof(check: Mapping[str, Any]) -> tuple[str, str]:
    """A check of the probe that failed, as a sentence, and the next step."""
    name, detail = str(check["name"]), str(check["detail"])
    answer = _SILENT_NEXT if "could not be asked" in detail else _ANSWER_NEXT
    return f"The proof {name} failed: {detail.rstrip('.')}.", _PROOF_NEXT.get(name, answer)


def again(raw: Mapping[str, Any]) -> Failed:
    """The failure that `as_dict` kept."""
    return Failed(raw["phase"], raw["detail"], tuple(raw["log"]), raw["next"])


_ENDS = {
    "refused": "Nothing was stopped or changed.",
    "rolled_back": "Release {from} runs again and is proven.",
    "failed": "It is stopped; there was no release to go back to.",
    "down": "It is down.",
}


def error_of(service: str, outcome: Mapping[str, Any]) -> dict[str, str]:
    """The `error` of a switch that did not end as asked."""
    result, failure = outcome["result"], outcome["failure"]
    end = _ENDS[result].format(**{"from": outcome["from"]})
    if result == "failed" and outcome["from"] == outcome["to"]:
        end = "It is the release that ran here before, so there is nothing to go back to."
    return Fault(
        f"{service} does not serve release {outcome['to']}. {end}",
        where=f"phase {failure['phase']}",
        why=failure["detail"],
        next=failure["next"] or "Mend the cause, then run the deploy again.",
        code=result,
    ).as_error()
