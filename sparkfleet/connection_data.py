"""The keys of a host that are pyinfra's own: how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pyinfra.connectors.ssh import ConnectorData

from sparkfleet.spec.wording import Reader

PREFIX = "ssh_"

_FIELDS: dict[str, Any] = {key: (kind, None) for key, kind in get_type_hints(ConnectorData).items()}

# What this pyinfra knows: it would ignore a misspelt key, and end the run over a wrong type.
_Connection: type[BaseModel] = create_model(
    "Connection", __config__=ConfigDict(extra="forbid", strict=True), **_FIELDS
)


def check_connection(host: str, data: Mapping[str, Any]) -> None:
    """Raise SpecError for a key that pyinfra does not know, or a value of another kind."""
    own = {key: value for key, value in data.items() if str(key).startswith(PREFIX)}
    try:
        _Connection.model_validate(own)
    except ValidationError as error:
        reader = Reader(_Connection, start=lambda place: f"Host {host}", host=host)
        raise reader.explain(error, own) from None
