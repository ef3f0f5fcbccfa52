"""pyinfra reads this file before the inventory and before any connection.

It refuses a command line that pyinfra itself would answer with exit code 0 although nothing was
done: an inventory that does not exist, a `--limit` that matches no host, and the like.
"""

from sparkfleet.guard import guard

guard()
