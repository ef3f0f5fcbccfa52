"""What differs from `sparks.py` for the simulated lab: a tiny model on the real engine."""

hardware = "gb10-lab"
recipe = "lab-tiny"
preset = "shared"

# The lab's addresses do not leave this machine, so that its nodes may be asked from outside them.
bind = "0.0.0.0"
