"""The units: one supervisor, bounded restarts, times that nest, no secret."""

from __future__ import annotations

from sparkfleet.node.faults import CONFIG
from sparkfleet.render import agent_unit, unit_file
from sparkfleet.spec.plan import ServicePlan

from .formats import unit_command, unit_words
from .samples import recipe, service


def settings(text: str) -> dict[str, list[str]]:
    """Setting → values, comments and sections left out."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def unit(plan: ServicePlan) -> dict[str, list[str]]:
    return settings(unit_file(plan))


def test_systemd_is_the_one_supervisor_and_bounded() -> None:
    read = unit(service(recipe=recipe(restart={"burst": 4})))
    assert read["Restart"] == ["always"]
    assert read["StartLimitBurst"] == ["4"]
    assert int(read["StartLimitIntervalSec"][0]) > 4 * 30 * 60
    assert read["KillMode"] == ["mixed"]
    assert read["RestartPreventExitStatus"] == [str(CONFIG)]


def test_a_unit_stops_later_than_docker_and_docker_later_than_the_engine() -> None:
    plan = service(flags={"shutdown-timeout": 120})
    assert int(unit(plan)["TimeoutStopSec"][0]) > 120 + 30


def test_commands_run_the_node_programs_with_no_argument_of_the_engine() -> None:
    read = unit(service(name="chat", root="/srv/spark fleet$1"))
    assert unit_command(read["ExecStart"][0]) == [
        "/usr/bin/python3",
        "-B",
        "/opt/sparkfleet/node/engine.py",
        "run",
        "--root",
        "/srv/spark fleet$1",
        "--service",
        "chat",
    ]
    assert unit_command(read["ExecStopPost"][0].removeprefix("-"))[3] == "stop"


def test_it_waits_for_docker_and_for_the_disks_and_comes_back_with_both() -> None:
    read = unit(service())
    assert "docker.service" in read["After"][0].split()
    assert read["Requires"] == ["docker.service"]
    assert read["WantedBy"][0].split() == ["multi-user.target", "docker.service"]
    assert unit_words(read["RequiresMountsFor"][0]) == [
        "/var/lib/sparkfleet",
        *(model.dir for model in service().models),
    ]


def test_a_title_with_specifiers_stays_a_title() -> None:
    read = unit(service(recipe=recipe(title="100 % of %n\nExecStart=/bin/false")))
    assert read["Description"] == ["sparkfleet llm: 100 %% of %%n ExecStart=/bin/false"]
    assert len(read["ExecStart"]) == 1


def test_the_agent_may_write_its_services_states_and_nothing_else() -> None:
    read = settings(agent_unit("/var/lib/sparkfleet"))
    assert read["ProtectSystem"] == ["strict"]
    assert unit_words(read["ReadWritePaths"][0]) == ["/var/lib/sparkfleet/services"]
    assert read["CapabilityBoundingSet"] == [""]
    assert read["NoNewPrivileges"] == ["yes"]
    assert unit_command(read["ExecStart"][0])[-2:] == ["--root", "/var/lib/sparkfleet"]


def test_run_directories_outlive_a_stop_for_a_trial_is_named_there() -> None:
    for text in (unit_file(service()), agent_unit("/r")):
        assert settings(text)["RuntimeDirectoryPreserve"] == ["yes"]
