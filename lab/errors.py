"""What goes wrong in the lab, said in sentences."""


class LabError(Exception):
    """A fault that the user can act on; the message says what, where and the next step."""

    exit_code = 1


class CannotRun(LabError):
    """This machine can't hold the lab at all (not Linux, not root, no overlay file system ...)."""

    exit_code = 3
