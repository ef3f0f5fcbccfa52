"""What is known of one host: the survey's answer, typed. A section that could not be read is an
`Unknown` with the raw text, never a default.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

T = TypeVar("T")

LEASE_SECONDS = 60.0
"""Seconds without a sign of life after which a run holds a host no more (node/lease.py)."""


class Known(BaseModel):
    """Base of every section: frozen; keys of a newer survey are ignored."""

    # Deferred: the whole answer builds one validator, not one for each section as well.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Unknown(Known):
    """A section that could not be read; `unknown` is the raw reason."""

    unknown: str


def known(value: T | Unknown, instead: T) -> T:
    """A section as it was read, or `instead` of one that could not be."""
    return instead if isinstance(value, Unknown) else value


def _or_unknown(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Keep what can't be understood as Unknown: one odd section must not cost the others."""
    if isinstance(value, dict) and set(value) == {"unknown"}:
        return Unknown(unknown=str(value["unknown"]))
    try:
        return validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        return Unknown(unknown=f"{place}: {first['msg']}; read: {str(value)[:500]}")


Read = Annotated[T | Unknown, WrapValidator(_or_unknown)]
"""A section as read, or Unknown."""

NOT_READ = Unknown(unknown="the survey's answer does not hold it")


class User(Known):
    """The owner: the user of the SSH session, who gets the model files."""

    name: str
    uid: int
    gid: int
    home: str


class OperatingSystem(Known):
    """From os-release."""

    id: str | None = None
    version: str | None = None
    title: str | None = None


class Dgx(Known):
    """From /etc/dgx-release; never the serial number."""

    name: str | None = None
    platform: str | None = None
    ota: str | None = None


class GpuDevice(Known):
    """One line of nvidia-smi. None stands for `[N/A]`, `Not Supported` and the like."""

    name: str
    driver: str | None
    compute_capability: str | None
    memory_mib: int | None


class Gpu(Known):
    """nvidia-smi's raw answer, the loaded kernel module's version, and Xid lines."""

    tool: bool
    rc: int | None = None
    """Exit status; None when nvidia-smi did not answer in time."""
    out: str = ""
    err: str = ""
    module: str | None = None
    xid: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Output and errors together, as a person would have seen them."""
        return "\n".join(part for part in (self.out, self.err, *self.xid) if part)

    @property
    def devices(self) -> tuple[GpuDevice, ...]:
        """The GPUs listed; none where nvidia-smi failed or printed something else."""
        rows = [line.rsplit(",", 3) for line in self.out.splitlines()] if self.rc == 0 else []
        return tuple(_device([cell.strip() for cell in row]) for row in rows if len(row) == 4)


def _device(cells: list[str]) -> GpuDevice:
    name, driver, capability, memory = cells
    return GpuDevice(
        name=name,
        driver=_value(driver),
        compute_capability=_value(capability),
        memory_mib=int(memory) if memory.isdigit() else None,
    )


def _value(cell: str) -> str | None:
    """None for the ways in which nvidia-smi says that it has no value: `[N/A]`, `Not Supported`."""
    return cell if cell[:1].isdigit() else None


class Docker(Known):
    """The daemon. Exactly one of `version`, `absent`, `error` and `denied` says something."""

    version: str | None = None
    absent: bool = False
    error: str | None = None
    denied: str | None = None
    root: str | None = None
    driver: str | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cdi: tuple[str, ...] = ()
    live_restore: bool = False


class Compose(Known):
    """The Compose plugin."""

    version: str | None = None
    absent: bool = False
    error: str | None = None


class Toolkit(Known):
    """The NVIDIA container toolkit: Debian package and the programs found."""

    package: bool
    version: str | None = None
    hook: str | None = None
    runtime: str | None = None
    ctk: str | None = None


class Memory(Known):
    """From /proc/meminfo, KiB."""

    total_kib: int
    available_kib: int
    swap_kib: int = 0
    swap_free_kib: int = 0

    @property
    def total_gib(self) -> float:
        """MemTotal in GiB; 121.7 on a GB10."""
        return self.total_kib / 2**20

    @property
    def available_gib(self) -> float:
        """MemAvailable in GiB: what the engine counts as free on an integrated GPU."""
        return self.available_kib / 2**20


class Filesystem(Known):
    """The file system under a directory; sizes in bytes."""

    dev: str
    mount: str
    free: int
    total: int
    read_only: bool = False


class Listener(Known):
    """A process listening on one of the wanted ports."""

    addr: str
    port: int
    pid: int | None = None
    process: str | None = None
    container: str | None = None
    """Id of the container that the process runs in."""


class Container(Known):
    """A container; the later fields only of those that have to do with us."""

    name: str
    id: str
    image: str | None = None
    digests: tuple[str, ...] = ()
    """RepoDigests of its image: image ids differ between image stores for one digest."""
    state: str | None = None
    ports: tuple[tuple[int, int], ...] = ()
    """Published port, port inside."""
    labels: dict[str, str] = Field(default_factory=dict)
    started: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    restart: str | None = None
    network: str | None = None
    cmd: tuple[str, ...] = ()
    """Path and arguments, secrets masked."""
    mounts: tuple[tuple[str | None, str | None, bool], ...] = ()
    """Source on the host, destination inside, writable."""

    @property
    def running(self) -> bool:
        """Whether it holds memory and ports now."""
        return self.state in ("running", "restarting", "paused")

    @property
    def service(self) -> str | None:
        """Our service that it belongs to, by its label."""
        return self.labels.get("sparkfleet.service")

    @property
    def release(self) -> str:
        """Our release that it was started from, by its label; empty where it carries none."""
        return self.labels.get("sparkfleet.release", "")

    @property
    def job(self) -> str | None:
        """The step of a run that it works for, by its label: a fetch outlives the run."""
        return self.labels.get("sparkfleet.job")


class Unit(Known):
    """A systemd unit."""

    load: str = ""
    active: str = ""
    sub: str = ""
    enabled: str = ""
    restarts: int | None = None
    result: str = ""
    path: str = ""
    pid: int | None = None
    needs_reload: bool = False
    file_sha256: str | None = None

    @property
    def present(self) -> bool:
        """Whether systemd knows the unit at all."""
        return self.load not in ("", "not-found")


class Runs(Known):
    """What a release on the host runs; None where its manifest can't be read."""

    recipe: str | None = None
    image: str | None = None
    """By digest."""
    version: str | None = None
    utilization: float | None = None
    """Fraction of the memory."""

    @property
    def label(self) -> str:
        """The image for a narrow column: its version, else the digest's first digits."""
        return self.version or str(self.image or "?").rpartition(":")[2][:12]


class Service(Known):
    """One of our services on the host."""

    current: str | None = None
    previous: str | None = None
    trial: str | None = None
    releases: dict[str, Runs] = Field(default_factory=dict)
    """Every release that the host keeps, by its hash."""
    files: dict[str, str] = Field(default_factory=dict)
    """sha256 of each file of the current release, by name."""
    state: dict[str, Any] | None = None
    """state.json as the agent wrote it."""
    figures: dict[str, Any] | None = None
    """The engine's own figures of its last boot (node/figures.py)."""
    secret_sha256_prefix: str | None = None
    switching: bool = False
    drain: dict[str, Any] | None = None
    """reason, who and since, where the owner keeps it out of the gateway."""


class Model(Known):
    """A model directory: what was verified and what lies there."""

    stamp: dict[str, Any] | None = None
    files: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Size in bytes and mtime in nanoseconds, by path."""
    config: dict[str, Any] | None = None
    """What the model's config.json says of its KV cache."""


class Weights(Known):
    """Weights that the owner downloaded by hand."""

    dir: str
    repo: str | None = None
    """Known for the hub's cache; a local directory does not tell it."""
    commits: tuple[str, ...] = ()
    files: dict[str, int] = Field(default_factory=dict)


class Gateway(Known):
    """What is on a host for a gateway."""

    haproxy: str | None = None
    """Where the program lies."""
    apt: bool = False
    files: dict[str, str] = Field(default_factory=dict)
    """sha256 of each of our files that is there, by path."""
    resolved: dict[str, str | None] = Field(default_factory=dict)
    """Address of each node that is known by name; None: the host can't resolve it."""


class Job(Known):
    """A long step on the host: the last event it wrote."""

    last: dict[str, Any] | None = None


class Lease(Known):
    """Which run holds the host, or held it last."""

    grants: int = 0
    """How many runs have held it so far."""
    run: str = ""
    """Empty where it was given back."""
    who: str = ""
    since: float = 0.0
    """Seconds since 1970 by the host's clock, as `renewed`."""
    renewed: float = 0.0

    def is_live(self, now: float) -> bool:
        """Whether a run holds the host at `now`, by the host's clock."""
        return bool(self.run) and abs(now - self.renewed) < LEASE_SECONDS


class HostFacts(Known):
    """Everything that one survey told of one host."""

    time: float
    """The host's clock, seconds since 1970."""
    received: float
    """Our clock when the answer came."""
    python: str
    privileged: bool
    """Read as root; else much is Unknown."""
    sudo_error: str | None = None
    user: Read[User] = NOT_READ
    machine_id: Read[str | None] = NOT_READ
    """A digest of it."""
    host_keys: Read[dict[str, str]] = NOT_READ
    boot_id: Read[str] = NOT_READ
    uptime: Read[float] = NOT_READ
    arch: Read[str] = NOT_READ
    kernel: Read[str] = NOT_READ
    os: Read[OperatingSystem] = NOT_READ
    dgx: Read[Dgx | None] = NOT_READ
    gpu: Read[Gpu] = NOT_READ
    docker: Read[Docker] = NOT_READ
    compose: Read[Compose] = NOT_READ
    toolkit: Read[Toolkit] = NOT_READ
    memory: Read[Memory] = NOT_READ
    filesystems: Read[dict[str, Filesystem]] = NOT_READ
    listeners: Read[tuple[Listener, ...]] = NOT_READ
    containers: Read[tuple[Container, ...]] = NOT_READ
    images: Read[dict[str, str]] = NOT_READ
    """Reference (by digest or by tag) → image id on this host."""
    units: Read[dict[str, Unit]] = NOT_READ
    node_files: Read[dict[str, str]] = NOT_READ
    services: Read[dict[str, Service]] = NOT_READ
    models: Read[dict[str, Model]] = NOT_READ
    partials: Read[dict[str, int]] = NOT_READ
    """Bytes of downloads under way, by path below {models_dir}/.partial."""
    weights: Read[tuple[Weights, ...]] = NOT_READ
    jobs: Read[dict[str, Job]] = NOT_READ
    gateway: Read[Gateway | None] = NOT_READ
    lease: Read[Lease] = NOT_READ

    def job_running(self, name: str) -> bool:
        """Whether a job's transient unit is active."""
        unit = self.units.get(f"sparkfleet-job-{name}.service") if not isinstance(
            self.units, Unknown) else None  # fmt: skip
        return unit is not None and unit.active in ("active", "activating")
