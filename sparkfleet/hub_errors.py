"""What huggingface_hub raises, as sentences for the owner of the fleet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from sparkfleet.spec.errors import SpecError


class HubError(SpecError):
    """What the hub refused or could not say, as a sentence; `code` as the node's fetch has it:
    hub-401, hub-403, hub-404, hub-429, hub-5xx, unreachable, too-old, no-files."""

    def __init__(self, message: str, *, code: str, repo: str, status: int | None = None) -> None:
        super().__init__(message, key=repo)
        self.code = code
        self.repo = repo
        self.status = status


def is_transport(error: BaseException) -> bool:
    """Whether it is a failure of the connection. The HTTP library differs between releases of
    huggingface_hub (requests, httpx, httpx2), its exceptions with it."""
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or library.startswith(("httpx", "httpcore"))


@contextmanager
def sentences(repo: str, revision: str, endpoint: str | None, token: str | None) -> Iterator[None]:
    """Turn what huggingface_hub raises within into HubError, the original as its cause."""
    hub = endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    who = "with the stored token" if token else "without a token"

    def wrong(message: str, code: str, error: Any = None) -> HubError:
        response = getattr(error, "response", None)
        status = response.status_code if response is not None else None
        return HubError(f"{repo}: {message}", code=code, repo=repo, status=status)

    try:
        yield
    except GatedRepoError as error:  # a kind of RepositoryNotFoundError: it has to come first
        raise wrong(
            f"the hub keeps this repository behind a gate, {who}. Accept its terms at "
            f"{hub}/{repo}, then log in on this machine (hf auth login).",
            "hub-403",
            error,
        ) from error
    except RepositoryNotFoundError as error:
        code = "hub-401" if error.response.status_code == 401 else "hub-404"
        raise wrong(
            f"the hub has no such repository, or it is private ({who}). Compare the id letter by "
            f"letter, case counts; for a private one log in on this machine (hf auth login).",
            code,
            error,
        ) from error
    except RevisionNotFoundError as error:
        raise wrong(
            f"the repository has no revision {revision!r}. Name a branch, tag or commit that "
            f"{hub}/{repo}/commits shows.",
            "hub-404-revision",
            error,
        ) from error
    except OfflineModeIsEnabled as error:
        raise wrong(
            "HF_HUB_OFFLINE is set on this machine, so the hub may not be asked. Unset it for this "
            "first run; once the lock is written, no deploy asks the hub from here.",
            "offline",
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 429:
            raise wrong(
                f"the hub says that it was asked too often (429, {who}). Wait some minutes, or log "
                "in on this machine (hf auth login), which allows more.",
                "hub-429",
                error,
            ) from error
        if status in (401, 403):
            raise wrong(
                f"the hub refuses access ({status}, {who}). Log in on this machine with an account "
                "that may read it (hf auth login).",
                f"hub-{status}",
                error,
            ) from error
        code = "hub-5xx" if status >= 500 else f"hub-{status}"
        raise wrong(
            f"the hub answered {status}. That is on its side: run the same command again later.",
            code,
            error,
        ) from error
    except Exception as error:
        if not is_transport(error):
            raise
        raise wrong(
            f"the hub at {hub} can't be reached ({str(error) or type(error).__name__}). Look at "
            "this machine's network and proxy, or at hub_endpoint in the inventory.",
            "unreachable",
        ) from error
