"""The project's own catalog, and short ways to resolve one host or to be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from sparkfleet.spec.catalog import Catalog, load_catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.inventory import parse_host
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.resolve import resolve

# A busy machine must not fail a test of arithmetic.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

PROJECT = Path(__file__).resolve().parents[3]
A = "qwen36-35b-heretic"


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog(PROJECT)


@pytest.fixture
def serve(catalog: Catalog) -> Callable[..., ServicePlan]:
    """Resolve one service on host h1; recipe A unless another is named."""

    def one(**keys: Any) -> ServicePlan:
        host = parse_host("h1", {"recipe": A, **keys})
        return resolve(host, catalog, None).services[0]

    return one


@pytest.fixture
def refused(serve: Callable[..., ServicePlan]) -> Callable[..., SpecError]:
    """The error that the same keys meet."""

    def one(**keys: Any) -> SpecError:
        with pytest.raises(SpecError) as caught:
            serve(**keys)
        return caught.value

    return one
