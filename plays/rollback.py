"""Go back to the release that each host served before, proven again, batch by batch.

    pyinfra inventory/lab.py plays/rollback.py

Rolled like a deploy: canary, batch and soak hold, and the first failure stops the rest. Only hosts
on the inventory's release go back, so the same command again carries on and goes no further. The
next deploy brings the inventory's release again: to stay, change the inventory back as well.
"""

from sparkfleet.stages.report import report
from sparkfleet.stages.roll import roll
from sparkfleet.stages.verb import find, ready
from sparkfleet.verbs import back

# Which hosts serve what the inventory says, and what they served before; nothing changed yet.
fleet = find(back, releases=True)

# One run at a time; our programs, and the old image where it is gone.
ready(fleet)

# Batch by batch, as a deploy.
roll(fleet)

fleet.remark(
    "The inventory still says what was left: the next deploy brings it again. To stay at what runs "
    "now, change the inventory back too."
)
report(fleet)
