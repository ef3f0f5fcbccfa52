"""The simulated lab: Sparks on one Linux machine, for the demo and the tests.

The product never imports this package; it reads the run state that the lab writes (`lab.json`).
"""
