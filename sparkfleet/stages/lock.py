"""lock: pins beside the deploy. What has moved upstream, and moving to it, on the owner's word."""

from __future__ import annotations

import sys

from pyinfra.context import ctx_state
from rich.console import Console

from sparkfleet.console.tables import moves_table
from sparkfleet.fleet import Fleet
from sparkfleet.locking import write_lock
from sparkfleet.pins import fill_lock
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.lock import Lock
from sparkfleet.spec.options import LockOptions
from sparkfleet.spec.upgrade import keys_of, moves
from sparkfleet.stages.begin import stop, this_fleet
from sparkfleet.stages.introduce import introduce_newcomers
from sparkfleet.stages.look import table_console


def lock() -> None:
    """Pin what the inventory serves and the lock lacks; with `check=true` only say what has moved
    upstream, with `update=RECIPE` move that recipe's pins. No host is changed."""
    fleet = this_fleet()
    fleet.once.do("lock", lambda: _lock(fleet))


def _lock(fleet: Fleet) -> None:
    console, options = table_console(fleet), fleet.options
    assert isinstance(options, LockOptions)
    try:
        if options.check:
            _check(console, fleet)
        elif options.update:
            _update(console, fleet, options.update)
        else:
            _fill(console, fleet)
    except SpecError as error:
        stop(f"{error}\n{fleet.lock_path.name} is as it was.")
    if not fleet.json:  # pyinfra would go on to a change of nothing
        sys.exit(0)


def _pins(fleet: Fleet, lock: Lock) -> Lock:
    """`lock` with what it lacks of what this inventory serves, asked of hub and registries."""
    return fill_lock(lock, fleet.plans, ctx_state.get().inventory)


def _check(console: Console, fleet: Fleet) -> None:
    now = moves(fleet.lock, _pins(fleet, Lock()))
    if not now:
        console.print("Nothing has moved upstream of what this inventory serves.")
        return
    console.print(moves_table("Moved upstream", now))
    console.print("The fleet stays as pinned. To move: --data update=RECIPE, then deploy.")


def _update(console: Console, fleet: Fleet, recipe: str) -> None:
    served = {one.recipe.name for plan in fleet.plans.values() for one in plan.services}
    if recipe not in served:
        raise SpecError(
            f"--data update={recipe}: no host of this run serves that recipe, so nobody says which "
            f"image and variant it means. Served here: {', '.join(sorted(served))}."
        )
    before = fleet.lock
    fleet.use_lock(_pins(fleet, before.without(*keys_of(before, recipe))))
    now = moves(before, fleet.lock)
    if now:
        console.print(moves_table("Moved" if not fleet.dry else "Would move", now))
    _keep(console, fleet, before)


def _fill(console: Console, fleet: Fleet) -> None:
    before = fleet.lock
    fleet.use_lock(_pins(fleet, before))
    introduce_newcomers(console, fleet, before)
    _keep(console, fleet, before)


def _keep(console: Console, fleet: Fleet, before: Lock) -> None:
    name = fleet.lock_path.name
    if fleet.lock == before:
        console.print(f"{name} is complete and says so already; nothing was written.")
    elif fleet.dry:
        console.print(f"{name} would be written; with --dry it is not.")
    else:
        fleet.lock_path.parent.mkdir(parents=True, exist_ok=True)
        write_lock(fleet.lock_path, fleet.lock)
        console.print(f"{name} was written. Review it (git diff), commit it; a deploy rolls it.")
