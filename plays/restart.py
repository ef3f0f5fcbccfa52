"""Start the engines again, host by host, without losing a request.

    pyinfra inventory/lab.py plays/restart.py

The release stays the same; what runs is drained first and proven again after. Rolled like a deploy:
canary, batch and soak hold, and the first failure stops the rest.
"""

from sparkfleet.stages.report import report
from sparkfleet.stages.roll import roll
from sparkfleet.stages.verb import find, ready
from sparkfleet.verbs import again

# What runs where; nothing changed yet.
fleet = find(again)

# One run at a time, our programs up to date.
ready(fleet)

# Batch by batch: drain, stop, start, prove.
roll(fleet)
report(fleet)
