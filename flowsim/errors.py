"""What ends a command early: the user's input, or the user."""


class InputError(ValueError):
    """Bad input: one sentence that names the input and what it may be.

    The command line prints the sentence on stderr and exits with code 2; library callers catch
    it as a ``ValueError``.
    """


class Interrupted(Exception):
    """The user stopped a long run; the sentence says what is kept and how to go on.

    The command line prints the sentence and exits with code 130.
    """
