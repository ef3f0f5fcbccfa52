"""`python -m lab`: the simulated lab's command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from lab import machine, runstate, trial, up
from lab.api import Lab
from lab.errors import LabError
from lab.settings import Settings, from_environment


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m lab", description="Simulated DGX Sparks on this machine (needs root)."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = verbs.add_parser("up", help="bring the lab up, or complete it")
    start.add_argument("--hosts", type=int, metavar="N", help="at least N hosts (default 3)")
    start.add_argument("--fresh", action="store_true", help="throw the hosts' disks away first")
    start.add_argument("--no-images", action="store_true", help="build and push no engine image")
    start.add_argument(
        "--tie-to",
        type=int,
        metavar="PID",
        help="take the lab that this starts down when that process ends",
    )
    stop = verbs.add_parser("down", help="switch the hosts off and leave nothing behind")
    stop.add_argument("--purge", action="store_true", help="throw the hosts' disks away too")
    state = verbs.add_parser("status", help="what is up (exit code 0: everything)")
    state.add_argument("--json", action="store_true")
    shell = verbs.add_parser("shell", help="log in to a host, as its user, over ssh")
    shell.add_argument("host")
    cycle = verbs.add_parser("power-cycle", help="pull a host's plug and put it back")
    cycle.add_argument("host")
    inside = verbs.add_parser("exec", help="run a command as root inside a host, without ssh")
    inside.add_argument("host")
    inside.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD")
    verbs.add_parser("try", help="a line to ask a deployed node something")
    verbs.add_parser("install", help="install the Debian packages that the lab needs")
    return top


def status(settings: Settings, *, as_json: bool) -> int:
    """Print what is up; 0 when everything is, 1 otherwise."""
    if runstate.supervisor(settings) is None or not settings.state_file.exists():
        left = f"; `python -m lab down` clears what is left in {settings.run}"
        said = f"The lab is down{left if settings.run.exists() else ''}."
        print(json.dumps({"state": "down"}) if as_json else said)
        return 1
    lab = Lab.load(settings)
    units = runstate.ask(settings, "state")
    rows = {
        name: {"address": lab.hosts[name].address, "state": lab.state(name)} for name in lab.hosts
    }
    services = {name: lab.service_answers(name) for name in units["services"]}
    faults = {
        name: unit["fault"]
        for group in ("hosts", "services")
        for name, unit in units[group].items()
        if unit["state"] == "failed"
    }
    whole = all(row["state"] == "ready" for row in rows.values()) and all(services.values())
    state = "up" if whole else "partial"
    if as_json:
        answer = {"state": state, "hosts": rows, "services": services, "faults": faults}
        answer |= {"registry": lab.registry, "hub": lab.hub, "recipes": str(lab.recipes)}
        print(json.dumps(answer, indent=2))
    else:
        print(f"The lab is {'up' if whole else 'up in part'}.")
        for name, row in rows.items():
            print(f"  {name:<10} {row['address']:<15} {row['state']}")
        for name, answers in services.items():
            print(f"  {name:<10} {settings.gateway:<15} {'answers' if answers else 'silent'}")
        for name, fault in faults.items():
            print(f"  {name}: {fault}")
    return 0 if whole else 1


def act(arguments: argparse.Namespace) -> int:
    settings = runstate.recorded(from_environment())
    match arguments.verb:
        case "up":
            began = time.monotonic()
            lab = up.up(
                settings,
                hosts=arguments.hosts,
                fresh=arguments.fresh,
                images=not arguments.no_images,
                tie_to=arguments.tie_to,
            )
            names = ", ".join(f"{h.name} {h.address}" for h in lab.hosts.values())
            print(f"The lab is up: {names} ({time.monotonic() - began:.1f} s).")
        case "down":
            up.down(settings, purge=arguments.purge)
            disks = "are gone" if arguments.purge else "stay"
            print(f"The lab is down; the disks of its hosts {disks}.")
        case "status":
            return status(settings, as_json=arguments.json)
        case "shell":
            lab = Lab.load(settings)
            argv = lab.host(arguments.host).ssh_argv()
            os.execvp(argv[0], argv)
        case "power-cycle":
            Lab.load(settings).power_cycle(arguments.host)
            print(f"{arguments.host} lost its power, and is back.")
        case "exec":
            command = arguments.command
            if command[:1] == ["--"]:
                del command[0]
            if not command:
                raise LabError("`python -m lab exec HOST -- CMD` needs a command.")
            argv = Lab.load(settings).inside_argv(arguments.host, command)
            os.execvp(argv[0], argv)
        case "try":
            print(f"Try it:\n  {trial.line(Lab.load(settings))}")
        case "install":
            machine.install()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb: 0 done, 1 a fault, 3 this machine can't hold the lab."""
    try:
        return act(parser().parse_args(argv))
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted; `python -m lab down` removes what was begun.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
