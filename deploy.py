"""Bring the fleet to what the inventory says, and prove that every node answers.

    pyinfra inventory/lab.py deploy.py

Run it again whenever you like: a second run with nothing changed changes nothing, and says so. A
change of image, recipe, preset or flag in the data is an upgrade, and this same command rolls it.
"""

from sparkfleet.stages.check import check
from sparkfleet.stages.configure import configure
from sparkfleet.stages.gateway import gateway
from sparkfleet.stages.report import report
from sparkfleet.stages.roll import roll
from sparkfleet.stages.stage import stage

# Every host, every fault found at once, nothing changed yet.
fleet = check()

# Image by digest, models by commit, verified; what runs goes on running.
stage(fleet)

# A release directory: compose file, unit, proof, rendered and hashed.
configure(fleet)

# Where there is one: HAProxy before all nodes; a node is in once its agent says that it is proven.
gateway(fleet)

# Batch by batch: each host stops, starts, proves itself; or puts back what ran before.
roll(fleet)

# One table: host, recipe, image, memory, state, why.
report(fleet)
