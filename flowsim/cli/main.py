"""The command line: arguments in, records and figures out, one sentence for every error.

Heavy imports happen inside the commands, after the options were checked, so that ``--help`` and
error messages appear at once.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from typer.core import TyperCommand

from flowsim.cli import options
from flowsim.cli.interruption import INTERRUPTED, SENTENCE, ended_by_signals
from flowsim.cli.output import BAD_INPUT, echo, redraw, warn
from flowsim.errors import InputError, Interrupted
from flowsim.records.attributes import installed_version
from flowsim.spec import or_list

#: Options that people guess, and the ones that mean the same; of each those that a command has.
_MEANT = {
    "--N": "--length", "--n": "--length", "--positions": "--length", "--optimizer": "--trainer",
    "--trainer": "--optimizer", "--lr": "--learning-rate", "--epochs": "--steps",
    "--dim": "--d", "--size": "--resolution", "--grid": "--resolution", "--output": "--out",
    "--force": "--overwrite", "--continue": "--resume", "--workers": "--jobs",
    "--gpu": "--device", "--xlim": "--window", "--ylim": "--window",
    "--fixed": "--fix", "--std": "--sigma", "--samples": "--cloud", "--load": "--from",
}  # fmt: skip
#: Messages of typer, and their replacements.
_THEIRS = {
    "Input should be": "must be",
    "Value error, ": "",
    "a valid number, unable to parse string as a number": "a number, without a unit",
    "a valid integer, unable to parse string as an integer": "a whole number",
}
#: Ranges in the help that nobody meets, with bounds of many digits.
_WIDE = re.compile(r"(?: *\[|(; ))(?:\S+<=x<=(?:\d{5,}[\d.]*|\S*e[+-]?\d+)|1e-\d+<=x<=\S+)\]\Z")
#: Messages of torch when memory is exhausted, on the processor and on a GPU.
_OUT_OF_MEMORY = re.compile(r"DefaultCPUAllocator|out of memory")

app = typer.Typer(
    name="flowsim",
    help="Gradient flow of transformers on Markov chains, from initialization to basin.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


class _InSections(TyperCommand):
    """A command whose help lists its options under headings."""

    def format_options(self, ctx: typer.Context, formatter: object) -> None:  # type: ignore[override]
        """Write the help of every option under the heading of its section."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in options.SECTIONS}
        for param in self.get_params(ctx):
            heading = getattr(param, "rich_help_panel", None) or options.OUTPUT
            if (record := param.get_help_record(ctx)) is not None:
                text = _WIDE.sub(lambda found: "]" if found[1] else "", record[1])
                sections[heading].append((record[0], text))
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):  # type: ignore[attr-defined]
                    formatter.write_dl(records)  # type: ignore[attr-defined]


def _print_version(asked: bool) -> None:
    """Print the version and exit, if it is asked for."""
    if asked:
        echo(f"flowsim {installed_version()}")
        raise typer.Exit


@app.callback()
def _root(
    asked: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Gradient flow of transformers on Markov chains, from initialization to basin."""


class _Notices(logging.Handler):
    """Prints on stderr what the package logs, such as that code is compiled."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def command(run: Callable[[Any], None]) -> Callable[..., None]:
    """Make a command of a function: its options are the fields of the dataclass that it takes.

    With --from the command redraws a record in place of calling the function.
    """
    (kind,) = (hint for name, hint in get_type_hints(run).items() if name != "return")

    def from_shell(**values: object) -> None:
        given = kind(**values)
        (redraw if getattr(given, "source", None) else run)(given)

    hints, keyword = get_type_hints(kind, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    of_kind = inspect.signature(kind).parameters
    fields = [x.replace(annotation=hints[n], kind=keyword) for n, x in of_kind.items()]
    from_shell.__signature__ = inspect.Signature(fields)  # type: ignore[attr-defined]
    from_shell.__annotations__ = {name: hints[name] for name in of_kind}
    from_shell.__doc__, from_shell.__name__ = run.__doc__, run.__name__
    return from_shell


for name, text in (
    ("portrait", "Draw basins of attraction, or any record."),
    ("explore", "Explore basins and training in the browser."),
    ("scan", "Find where each of many initializations ends."),
    ("gaussian", "Draw success against a Gaussian's scale."),
    ("continue_", "Follow critical points over a parameter."),
    ("noise", "Say how likely each end is under noise."),
    ("compare", "Compare full training with the reduced flow."),
    ("train", "Train the full transformer."),
    ("verify", "Check the papers' theorems."),
    ("chain", "Say what is known of a Markov chain."),
    ("info", "Say what a record or checkpoint holds."),
):
    word = name.rstrip("_")
    run = getattr(import_module(f"flowsim.cli.commands.cmd_{word}"), name)
    app.command(word, cls=_InSections, short_help=text)(command(run))


def main() -> None:
    """Entry point: run the command, turn bad input into one sentence and exit code 2."""
    # closed descriptors lead to nowhere: else a file that is opened later would take their number,
    # and receive the messages for the user
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the least number that is free, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:  # so does Python call what was closed when it began
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # Greek letters in an ASCII terminal
            stream.reconfigure(errors="backslashreplace")
    with ended_by_signals():
        _run(options.with_windows(sys.argv[1:]))


def _run(arguments: list[str]) -> None:
    """Run a command line; turn errors into one sentence on stderr and an exit code."""
    log = logging.getLogger("flowsim")
    log.handlers = [_Notices()]
    log.setLevel(logging.WARNING if "--quiet" in arguments else logging.INFO)
    try:
        os.getcwd()
    except OSError as error:  # the folder was removed, which libraries answer with a crash
        why = error.strerror
        _fail(f"there is no working directory any more ({why}): change into a folder")
    try:
        code = app(arguments or ["--help"], prog_name="flowsim", standalone_mode=False)
    except typer.TyperException as error:
        unknown, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
        if not (unknown and context):
            _fail(error.format_message())
        known = [name for param in context.command.params for name in param.opts]
        meant = [_MEANT[unknown]] if _MEANT.get(unknown) in known else get_close_matches(
            unknown, known, 2, 0.75)  # fmt: skip
        what_there_is = f"{context.command_path} -h lists what there is"
        _fail(f"no option {unknown}: {f'is {or_list(meant)} meant?' if meant else what_there_is}")
    except InputError as error:
        _fail(str(error))
    except OSError as error:  # of the surroundings: names too long, folders that went away
        of = f"{error.strerror or error}: {str(error.filename)!r}"
        _fail(of if error.filename else f"{error}")
    except (MemoryError, RuntimeError) as error:  # torch has no MemoryError
        if not (isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error))):
            raise
        _fail("this needs more memory than there is: choose smaller sizes")
    except Interrupted as error:
        warn(str(error))
        sys.exit(INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        warn(SENTENCE)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str) -> NoReturn:
    """Print a sentence on stderr, in our words and with long ones cut, and exit with code 2."""
    for theirs, ours in _THEIRS.items():
        sentence = sentence.replace(theirs, ours)
    sentence = re.sub(r"\S{161,}", lambda word: f"{word[0][:57]}...", " ".join(sentence.split()))
    warn(sentence)
    sys.exit(BAD_INPUT)
