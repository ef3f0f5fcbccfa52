"""Show who gets what of each box's memory, and change nothing.

    pyinfra -y inventory/lab.py plays/plan.py

Exit code 0: everything fits. 1: the services of a host do not fit into what is available there now
(the last lines say what would fit), or the inventory was refused.
"""

from sparkfleet.stages.plan import plan

# One command to each host, the arithmetic of the whole fleet, no change ever.
plan()
