"""pyinfra reads this file before the inventory and before any connection.

It refuses a command line that pyinfra itself would answer with exit code 0 although nothing was
done: an inventory that does not exist, a `--limit` that matches no host, and the like.
"""

import sys

# pyinfra stops Python from keeping bytecode, to leave no config.pyc beside this file. Our package
# would then be compiled anew in every run, 0.1 s; what was asked of Python itself holds again.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from sparkfleet.guard import guard  # noqa: E402 (the line above is for this import)

guard()
