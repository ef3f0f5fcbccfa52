"""Check every host, every fault found at once, and change nothing.

    pyinfra -y inventory/lab.py plays/preflight.py

Exit code 0: every host passed. 1: a host failed a check (the table says which, why, and what to
do), or the inventory was refused. A deploy runs the same checks first.
"""

from sparkfleet.stages.preflight import preflight

# One command to each host, one table, no change ever.
preflight()
