"""What a measurement says when it can't be made."""


class BenchError(Exception):
    """Something did not run; a sentence."""
