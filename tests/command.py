"""The command line as a shell sees it, but in this process: Python and torch start only once."""

import contextlib
import io
from typing import NamedTuple
from unittest.mock import patch

from flowsim import cli


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(*words, cwd):
    """``flowsim WORDS`` in the folder ``cwd``."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        patch("sys.argv", ["flowsim", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            return Done(ended.code, out.getvalue(), err.getvalue())
    raise AssertionError("the command did not end the process")


def assert_refused(done, *words):
    """Exit code 2, nothing on stdout, and one sentence with these words on stderr."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("flowsim: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
