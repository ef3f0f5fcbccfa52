"""Pure checks: what was read and what is wanted -> findings."""
