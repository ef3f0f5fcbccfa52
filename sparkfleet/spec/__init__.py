"""Pure models and functions: inventory + recipe + hardware -> one release per service."""
