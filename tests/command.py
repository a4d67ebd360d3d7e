"""The command line as a shell sees it: in this process, for speed, or in one of its own."""

import contextlib
import io
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import typer.main

from flowsim.cli import main as cli
from flowsim.drawing import style

FLOWSIM = str(Path(sys.executable).with_name("flowsim"))

# typer builds all commands from their functions before every line, which is half of what a line
# costs that is refused: here they are built once
typer.main.get_command = cache(typer.main.get_command)


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


#: Lines on stderr that depend on how long things take, and on whether code is compiled already.
_NOTICE = re.compile(r"flowsim: (compiling the integrator|\d+ of \d+ [^,\n]+, ).*\n")


def without_notices(text):
    """What stderr holds beside the lines that depend on how long things take."""
    return _NOTICE.sub("", text)


def run(*words, cwd, notices=False):
    """``flowsim WORDS`` in the folder ``cwd``; notices of progress are left out unless asked.

    Figures are coarse: their pixels would cost a third to a half of a small command.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        patch("sys.argv", ["flowsim", *map(str, words)]),
        patch.object(style, "DPI", 50),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            text = err.getvalue()
            return Done(ended.code, out.getvalue(), text if notices else without_notices(text))
    raise AssertionError("the command did not end the process")


def run_line(line, cwd):
    """One line of a shell in the folder ``cwd``: flowsim's in this process, any other by bash."""
    if line.startswith("flowsim "):
        return run(*shlex.split(line)[1:], cwd=cwd)
    path = f"{Path(FLOWSIM).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-m", "-c", line], cwd=cwd, env=os.environ | {"PATH": path},
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def whole_process(*words, cwd):
    """The same in a process of its own."""
    done = subprocess.run([FLOWSIM, *words], cwd=cwd, capture_output=True, text=True)
    done.stderr = _NOTICE.sub("", done.stderr)
    return done


def processor_seconds(number):
    """What the process of that number has used of the processor so far."""
    fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_it_computes(process):
    """A command is loaded within two to three seconds of the processor, however busy it is."""
    while process.poll() is None and processor_seconds(process.pid) < 4:
        time.sleep(0.1)


def interrupted(*words, cwd, when):
    """Ctrl-C when ``when`` appears on the terminal: the exit code, and all that appeared."""
    own, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 150))
    process = subprocess.Popen([FLOWSIM, *words], cwd=cwd, stderr=theirs)
    os.close(theirs)
    shown, deadline, pressed = b"", time.monotonic() + 120, False
    while time.monotonic() < deadline:
        if not select.select([own], [], [], 1)[0]:
            continue
        try:
            shown += os.read(own, 4096)
        except OSError:  # the terminal's other end was closed
            break
        if not pressed and when.encode() in shown:
            pressed = True
            process.send_signal(signal.SIGINT)
    os.close(own)
    return process.wait(timeout=60), shown.decode()


def assert_refused(done, *words):
    """Exit code 2, nothing on stdout, and one sentence with these words on stderr."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("flowsim: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
