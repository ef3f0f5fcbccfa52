"""Take one host out of the gateway, by hand; its engine goes on running.

    pyinfra inventory/lab.py plays/drain.py --limit spark-9de0.local --data reason="new fan"

Waits until every gateway has heard and, within the host's drain_timeout, until no request runs. It
holds through reboots and deploys, until plays/readmit.py.
"""

from sparkfleet.stages.leave import leave

leave("out")
