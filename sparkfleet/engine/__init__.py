"""What runs inside the engine's container: standard library only, mounted read-only."""
