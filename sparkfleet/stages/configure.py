"""configure: release directories, key files, units; one remote command a host."""

from __future__ import annotations

import shlex

from sparkfleet.connector import SparkConnector
from sparkfleet.facts.survey import AGENT_UNIT
from sparkfleet.fleet import Fleet
from sparkfleet.operations.bundle import Placement, install_script, tarball
from sparkfleet.operations.step import step
from sparkfleet.stages.begin import this_host
from sparkfleet.verdict import Failure
from sparkfleet.work import HostWork, Wanted

UNITS = "/etc/systemd/system"


def configure(fleet: Fleet) -> None:
    """Write what the releases are made of. Nothing that runs is touched by it."""
    name = this_host().name
    work = fleet.work.get(name, HostWork(name))
    if not (work.files or work.agent or work.programs):
        return
    wanted = fleet.wanted[name]

    def write(connector: SparkConnector) -> Failure | None:
        files = placements(work, wanted)
        script = install_script(wanted.plan.root, files, after=commands(work, wanted))
        answer = connector.run(script, stdin=tarball(files), timeout=120)
        if answer.ok:
            return None
        return Failure(
            "The release could not be written.",
            answer.errors,
            "Look at the file systems of the host (full, read-only?), then run this again.",
        )

    step(fleet.verdict, "Write the release", write)


def placements(work: HostWork, wanted: Wanted) -> list[Placement]:
    """Every file that is to be written, secrets in directories that only root may enter."""
    plan = wanted.plan
    files = []
    for name in work.keys:
        service = plan.service(name)
        assert service.key_file is not None
        content = {"": (wanted.key_file[name], 0o600)}
        files.append(Placement(service.key_file, content, parent_mode=0o700))
    for release in work.releases:
        content = {name: (file.content.encode(), file.mode) for name, file in release.files.items()}
        target = f"{plan.service(release.service).dir}/releases/{release.hash}"
        files.append(Placement(target, content))
    files += [_unit(release.unit, release.files[release.unit].content) for release in work.units]
    if work.agent:
        files.append(_unit(AGENT_UNIT, wanted.agent_unit))
    return files


def commands(work: HostWork, wanted: Wanted) -> list[str]:
    """What is run on the host once the files stand."""
    lines = [f"mkdir -p {shlex.quote(wanted.plan.root)}/services"]
    if work.agent or work.units:
        lines.append("systemctl daemon-reload")
    lines += [f"systemctl enable --quiet {shlex.quote(one.unit)}" for one in work.units]
    if work.agent:
        lines.append(f"systemctl enable --quiet {AGENT_UNIT}")
    if work.agent or work.programs:  # a running agent has the old programs in memory
        lines.append(f"systemctl restart {AGENT_UNIT}")
    return lines


def _unit(name: str, text: str) -> Placement:
    return Placement(f"{UNITS}/{name}", {"": (text.encode(), 0o644)})
