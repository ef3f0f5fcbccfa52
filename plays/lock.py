"""Pin what the inventory serves: image digest, commits, every file with its hash.

    pyinfra -y inventory/lab.py plays/lock.py                        pin what is not pinned yet
    pyinfra -y inventory/lab.py plays/lock.py --data check=true      what has moved upstream
    pyinfra -y inventory/lab.py plays/lock.py --data update=RECIPE   move that recipe's pins

A deploy pins what is missing by itself and moves nothing. Changes no host; the lock is a file to
review and commit, and the deploy after it is the upgrade.
"""

from sparkfleet.stages.lock import lock

# The hub and the registries are asked here, and nowhere else after the first deploy.
lock()
