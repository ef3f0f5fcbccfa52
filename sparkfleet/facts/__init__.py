"""pyinfra facts: one bulk read per host, parsed by pure functions."""
