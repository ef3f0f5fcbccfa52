"""check, stage, configure, roll: compositions of facts, checks and operations."""
