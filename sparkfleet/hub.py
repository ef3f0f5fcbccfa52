"""Asking the hub what a recipe's repositories hold: commit, date, and every file with its hash.

On the controller, with huggingface_hub. Nobody is asked for a token who does not need one: the
first try is anonymous, for a stale token turns a public repository into a 401.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from huggingface_hub import HfApi, ModelInfo, get_token, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
from pydantic import ValidationError

from sparkfleet.hub_errors import HubError, is_transport, sentences
from sparkfleet.spec.image import ImageRef
from sparkfleet.spec.lock import LockedFile, LockedImage, LockedModel, LockedRecipe, too_old
from sparkfleet.spec.recipe import ModelFiles, Recipe

T = TypeVar("T")

#: Seconds one request to the hub may take.
TIMEOUT = 20.0
#: The longest wait that a hub may ask for with Retry-After, seconds.
MAX_WAIT = 30.0


def lock_recipe(recipe: Recipe, image: ImageRef, hub: Hub) -> LockedRecipe:
    """Everything a service of `recipe` needs, pinned; the image as far as its digest is known.

    Raises HubError.
    """
    models = {role: hub.lock_model(role, files) for role, files in recipe.models.items()}
    pinned = LockedImage(
        repository=image.repository, tag=image.tag, digest=image.digest, version=image.version
    )
    return LockedRecipe(image=pinned, models=models)


@dataclass
class Hub:
    """A hub at `endpoint` (None: huggingface.co, or HF_ENDPOINT)."""

    endpoint: str | None = None
    token: Callable[[], str | None] = field(default=get_token, repr=False)
    tries: int = 3
    sleep: Callable[[float], None] = time.sleep

    def lock_model(self, role: str, want: ModelFiles) -> LockedModel:
        """Pin `want`: its commit now, and the files of it that are needed. Raises HubError."""
        try:
            model = self._lock_model(want, None)
        except HubError as refused:
            if refused.status not in (401, 403, 404):
                raise
            if not (token := self.token()):
                raise self._near(want, refused) from None
            try:
                model = self._lock_model(want, token)
            except HubError as error:
                raise self._near(want, error) from None
        if too_old(want, model):
            said = f"is of {model.date[:10]}" if model.date else "has no known date"
            raise HubError(
                f"{want.repo} at {want.revision}: its commit {model.commit[:12]} {said}, and the "
                f"recipe takes no {role} from before {want.not_before} ({want.source}): older ones "
                "are known to be broken. Name a newer revision in the recipe.",
                code="too-old",
                repo=want.repo,
            )
        return model

    def _lock_model(self, want: ModelFiles, token: str | None) -> LockedModel:
        # `token=False` is how huggingface_hub is told to send none, though one may be stored.
        api = HfApi(endpoint=self.endpoint, token=token or False, library_name="sparkfleet")
        info = self._ask(
            want,
            token,
            lambda: api.model_info(
                want.repo, revision=want.revision, files_metadata=True, timeout=TIMEOUT
            ),
        )
        commit = str(info.sha)
        files = tuple(needed_files(info, want))
        closed = bool(info.private or info.gated)
        if closed:  # a gated repository shows its list of files to anyone, the files to few
            url = hf_hub_url(
                want.repo, files[0].path, revision=commit, endpoint=self.endpoint or api.endpoint
            )
            self._ask(want, token, lambda: api.get_hf_file_metadata(url=url, timeout=TIMEOUT))
        try:
            return LockedModel(
                repo=want.repo,
                revision=want.revision,
                include=want.include,
                exclude=want.exclude,
                commit=commit,
                date=self._date(api, want, info),
                private=closed or token is not None,
                files=files,
            )
        except ValidationError as error:
            raise HubError(
                f"{want.repo}: the hub's answer can't be used. {error.errors()[0]['msg']}.",
                code="hub-odd",
                repo=want.repo,
            ) from None

    def _date(self, api: HfApi, want: ModelFiles, info: ModelInfo) -> str:
        """When the commit was made; empty when the hub does not say.

        The model's own `last_modified` speaks of a branch's head, so it is the second choice, and
        none where a commit was asked for.
        """
        try:
            commits = api.list_repo_commits(want.repo, revision=str(info.sha))
            return commits[0].created_at.isoformat() if commits else ""
        except Exception as error:
            if not (isinstance(error, HfHubHTTPError) or is_transport(error)):
                raise
        head = want.revision != info.sha and info.last_modified
        return info.last_modified.isoformat() if head and info.last_modified else ""

    def _ask(self, want: ModelFiles, token: str | None, question: Callable[[], T]) -> T:
        """The answer; tried again, with patience that is bounded, when the hub is overloaded."""
        for left in reversed(range(self.tries)):
            try:
                with sentences(want.repo, want.revision, self.endpoint, token):
                    return question()
            except HubError as error:
                passing = error.code in ("hub-429", "hub-5xx", "unreachable")
                if not (passing and left):
                    raise
                self.sleep(_patience(error, self.tries - left))
        raise AssertionError("tries is at least 1")

    def _near(self, want: ModelFiles, error: HubError) -> HubError:
        """The same error, with the id that differs in case only, should the hub have one.

        To a stranger the hub says 401 of a repository that does not exist.
        """
        if error.code not in ("hub-401", "hub-404"):
            return error
        try:
            api = HfApi(endpoint=self.endpoint, token=False)
            found = list(api.list_models(search=want.repo.split("/")[1], limit=50))
        except Exception:
            return error  # a hint is not worth a second error
        near = [m.id for m in found if m.id.lower() == want.repo.lower() and m.id != want.repo]
        if not near:
            return error
        message = f"{error} The hub has {near[0]}: ids are case-sensitive, so write that."
        return HubError(message, code=error.code, repo=error.repo, status=error.status)


def needed_files(info: ModelInfo, want: ModelFiles) -> Iterator[LockedFile]:
    """The repository's files that `want` asks for, by path. Raises HubError when there are none,
    or when the hub withholds size or hash: without these nothing can be verified."""
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    names = filter_repo_objects(
        sorted(siblings),
        allow_patterns=list(want.include) if want.include is not None else None,
        ignore_patterns=list(want.exclude),
    )
    none = True
    for name in names:
        none, file = False, siblings[name]
        sha256 = file.lfs.sha256 if file.lfs else None
        size = file.lfs.size if file.lfs else file.size
        if size is None or not (sha256 or file.blob_id):
            raise HubError(
                f"{want.repo}: the hub gives no size or no hash for {name}, so it could not be "
                "verified on a host.",
                code="hub-odd",
                repo=want.repo,
            )
        yield LockedFile(
            path=name, size=size, sha256=sha256, git_sha1=None if sha256 else file.blob_id
        )
    if none:
        globs = f"include {list(want.include or ['*'])}, exclude {list(want.exclude)}"
        raise HubError(
            f"{want.repo} holds no file that the recipe asks for ({globs}).",
            code="no-files",
            repo=want.repo,
        )


def _patience(error: HubError, attempt: int) -> float:
    asked = getattr(error.__cause__, "response", None)
    said = asked.headers.get("Retry-After", "") if asked is not None else ""
    return min(float(said) if said.isdigit() else float(3**attempt // 3), MAX_WAIT)
