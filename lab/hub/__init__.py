"""A stand-in of the Hugging Face hub: the HTTP contract its real client speaks, on the bridge.

`store` keeps repositories as plain directories with a manifest, `faults` is the table of what goes
wrong and when, `server` answers, and `python -m lab.hub` runs it. Nothing here is imported by the
product: the product only ever sees an endpoint.
"""
