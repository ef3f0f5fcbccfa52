"""Measurements beside other tools, on the simulated lab. Nothing in the product imports this."""
