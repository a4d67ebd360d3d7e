"""The one exception that is the user's to mend."""


class InputError(ValueError):
    """Bad input: one sentence that names the input and what it may be.

    The command line prints the sentence on stderr and exits with code 2; library callers catch
    it as a ``ValueError``.
    """
