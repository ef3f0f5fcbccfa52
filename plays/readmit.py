"""Let a host into the gateway again that plays/drain.py took out.

    pyinfra inventory/lab.py plays/readmit.py --limit spark-9de0.local

It takes requests as soon as its engine is proven; exit code 1 where that is not so now.
"""

from sparkfleet.stages.leave import leave

leave("in")
