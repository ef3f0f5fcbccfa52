"""Programs that run on the Spark: standard library only."""
