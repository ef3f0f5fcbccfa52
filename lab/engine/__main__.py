"""`python -m lab.engine`: build and push by hand, or run a program inside a real engine."""

from __future__ import annotations

import argparse
import os
import sys

from lab import engine
from lab.engine import chroot, plan
from lab.engine.workshop import Workshop
from lab.errors import LabError
from lab.settings import from_environment


def main() -> int:
    """Parse the command line and do it; errors are sentences."""
    parser = argparse.ArgumentParser(prog="python -m lab.engine", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    push = verbs.add_parser("push", help="build what is missing and push it")
    push.add_argument("--registry", help="HOST:PORT (default: the lab's)")
    push.add_argument("only", nargs="*", help="images or repositories; default: all")
    inside = verbs.add_parser("run", help="run a program inside an engine, without a container")
    inside.add_argument("version", choices=plan.VERSIONS)
    inside.add_argument("argv", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    try:
        settings = from_environment()
        if args.verb == "push":
            registry = args.registry or settings.registry
            made = engine.ensure(settings.cache, registry, only=args.only or None)
            for name, reference in made.images.items():
                print(f"{name} {reference}")
            return 0
        workshop = Workshop(settings.cache)
        with workshop.locked():
            trees = workshop.engine_trees(args.version)
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    command = chroot.command(trees, args.argv)
    return os.execvp(command[0], command)


if __name__ == "__main__":
    raise SystemExit(main())
