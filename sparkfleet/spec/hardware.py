"""Hardware profiles: what a kind of box is, as data that checks and memory arithmetic read."""

from __future__ import annotations

from pydantic import Field

from sparkfleet.spec.base import Model, Name, Rows, Text
from sparkfleet.spec.image import ReplacementImage
from sparkfleet.spec.recipe import Cap


class Driver(Model):
    """NVIDIA driver branches; the driver itself is never touched."""

    floor: int = Field(description="Lowest branch that works, such as 580.")
    supported: Rows[int] = Field(description="Branches the vendor supports; others are warned of.")
    source: Text = Field(description="Where it was read.")


class HardwareProfile(Model):
    """One file of hardware/, after its parents were merged in."""

    name: Name = Field(description="The file's stem; what an inventory names.")
    description: Text = Field(description="A sentence.")
    inherits: Name | None = Field(default=None, description="Profile that this one starts from.")
    arch: Text = Field(description="As `uname -m` says: aarch64, x86_64.")
    compute_capability: Text = Field(description="The safe key of a GPU: 12.1 on GB10.")
    driver: Driver = Field(description="Driver branches.")
    docker_floor: int = Field(description="Lowest major version of Docker Engine.")
    memory_gib: float = Field(gt=0, description="Memory that the system reports, GiB.")
    max_utilization: Cap = Field(description="Cap of one service and of all services together.")
    images: dict[str, ReplacementImage] = Field(
        default_factory=dict, description="Recipe's repository → image that replaces it here."
    )
    sources: Rows[Text] = Field(min_length=1, description="Where the figures were read.")
    lineage: Rows[Name] = Field(
        default=(),
        description="Set on loading: this profile's name and its ancestors', nearest first.",
    )
