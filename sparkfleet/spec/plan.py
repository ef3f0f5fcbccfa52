"""Plans: what will stand on a host once inventory, recipe, hardware and lock are one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkfleet.spec.base import FlagValue
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.image import IMAGE_FLOORS, ImageRef
from sparkfleet.spec.inventory import HostSpec, ServiceSpec
from sparkfleet.spec.logs import Logs
from sparkfleet.spec.memory import MemoryPlan
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.weights import TensorNames

CONTAINER_PORT = 8000


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One repository of weights that a service mounts."""

    role: str
    repo: str
    revision: str
    """What the recipe asks for; moving unless it is a commit."""
    commit: str | None
    """40 hex digits from the lock; None until locked."""
    mount: str
    include: tuple[str, ...] | None
    exclude: tuple[str, ...]
    dir: str
    """Directory on the host; ends in the commit (in the revision while that is unknown)."""
    tensors: TensorNames | None = None
    """Tensor names to find, and not to find, in the staged safetensors headers."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One service on one host, resolved."""

    host: str
    name: str
    spec: ServiceSpec
    recipe: Recipe
    """With the chosen variant merged in."""
    root: str
    utilization: float
    memory: MemoryPlan
    flags: dict[str, FlagValue]
    """Every flag that holds, additions included, in order, `${utilization}` replaced."""
    env: dict[str, str]
    """Environment of the container, including the variables of an environment-driven image."""
    image: ImageRef
    models: tuple[ModelPlan, ...]
    container: str
    port: int
    bind: str
    auth: str
    logs: Logs
    """The recipe's telling lines, without those whose rule is overridden or lifted."""
    notes: tuple[str, ...]
    """Overrides and fallbacks in use, with reasons: shown in every report."""
    lock_key: str
    """Key of this service's pins in recipes.lock."""

    @property
    def floors(self) -> dict[str, str]:
        """Lowest versions of what the image holds, to be asked of it; none where overridden."""
        lifted = {rule for key in self.spec.fallbacks for rule in self.recipe.fallbacks[key].lifts}
        passed = IMAGE_FLOORS in {*lifted, *self.spec.overrides}
        return {} if passed else {str(name): low for name, low in self.recipe.image.floors.items()}

    @property
    def argv_flags(self) -> dict[str, FlagValue]:
        """The flags that go on the command line: none for an environment-driven image."""
        return {} if self.recipe.command.environment else self.flags

    @property
    def container_port(self) -> int:
        """Port inside the container: the recipe's `port` flag."""
        value = self.flags.get("port", CONTAINER_PORT)
        return value if isinstance(value, int) else CONTAINER_PORT

    @property
    def max_num_seqs(self) -> int | None:
        """Requests that the engine runs at once; None: the engine's own default."""
        value = self.flags.get("max-num-seqs")
        return value if isinstance(value, int) else None

    @property
    def unit(self) -> str:
        """Name of the systemd unit."""
        return f"sparkfleet-{self.name}.service"

    @property
    def project(self) -> str:
        """Name of the compose project."""
        return f"sparkfleet-{self.name}"

    @property
    def dir(self) -> str:
        """The service's directory on the host."""
        return f"{self.root}/services/{self.name}"

    @property
    def key_file(self) -> str | None:
        """Host path of the engine's key file; None with auth: none."""
        return f"{self.dir}/secrets/engine.yaml" if self.auth == "key" else None

    @property
    def cache_dirs(self) -> dict[str, str]:
        """Cache name → directory on the host, one set per image."""
        image = self.image.digest[7:19] if self.image.digest else str(self.image.tag)
        return {name: f"{self.root}/cache/{image}/{name}" for name in self.recipe.caches}

    @property
    def proofs(self) -> list[dict[str, Any]]:
        """The proof rows as proof.json carries them."""
        return [proof.row() for proof in self.recipe.proofs]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """One host, resolved."""

    name: str
    spec: HostSpec
    hardware: HardwareProfile
    root: str
    models_dir: str
    services: tuple[ServicePlan, ...]
    findings: tuple[Finding, ...] = ()
    """What is to be said before anything is read from the host: warnings of rules, overrides."""

    def service(self, name: str) -> ServicePlan:
        """The service of that name; KeyError when there is none."""
        for service in self.services:
            if service.name == name:
                return service
        raise KeyError(name)
