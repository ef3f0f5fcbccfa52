"""Repositories of weights that a recipe needs."""

from __future__ import annotations

import datetime

from pydantic import Field

from sparkfleet.spec.base import Model, Rows, Sourced, Text


class TensorNames(Sourced):
    """Prefixes of tensor names, read from the safetensors header without loading the weights."""

    require: Rows[Text] = Field(description="Each must begin some tensor's name.")
    forbid: Rows[Text] = Field(default=(), description="None may begin a tensor's name.")


class ModelFiles(Model):
    """A repository of weights on the hub and where it is mounted."""

    repo: str = Field(
        pattern=r"^[\w.-]+/[\w.-]+$", description="Owner and name; case matters on the hub."
    )
    revision: Text = Field(
        default="main", description="Branch, tag or commit that the lock resolves."
    )
    mount: str = Field(pattern=r"^/[\w./-]+$", description="Path inside the container, read-only.")
    not_before: datetime.date | None = Field(
        default=None, description="Commits older than this day are known to be broken."
    )
    weights_gib: float | None = Field(default=None, gt=0, description="Size of the weights, GiB.")
    include: Rows[Text] | None = Field(
        default=None, description="Globs of files to fetch; null: all."
    )
    exclude: Rows[Text] = Field(default=(), description="Globs of files to leave out.")
    tensors: TensorNames | None = Field(default=None, description="Checked on the staged files.")
    source: Text = Field(description="Where repository, date and size were read.")
