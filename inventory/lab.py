"""Your Sparks. Copy this file or edit the three lines; then

    pyinfra inventory/lab.py deploy.py

Each line is a host name or address as `ssh` takes it. What holds for all of them is in
`group_data/sparks.py`; what differs on one box stands beside its name.
"""

from sparkfleet.inventory import fleet

sparks = fleet(
    "spark-1.local",
    "spark-2.local",
    ("spark-3.local", {"preset": "shared"}),
)
