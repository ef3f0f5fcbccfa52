"""What holds for every Spark of the fleet. A host's own line in the inventory wins over this.

Every key is explained in docs/inventory.md; a misspelt one is refused before any connection.
"""

# What to serve: a file in recipes/.
recipe = "qwen36-35b-heretic"

# GPU memory: a preset of the recipe. `alone`: nothing else runs on the box; `shared`: other work
# does.
preset = "alone"

# Where the engine listens on the host. Closed by default: only the Spark itself reaches it.
# To open it to your network write bind = "0.0.0.0" (or one address of the box); the API key that
# the first deploy makes is then what keeps it closed.
bind = "127.0.0.1"
port = 8000
