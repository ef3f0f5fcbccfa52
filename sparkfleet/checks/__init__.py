"""Pure checks: what was read and what is wanted -> findings."""

from sparkfleet.checks.fleet import check_fleet, check_host

__all__ = ["check_fleet", "check_host"]
