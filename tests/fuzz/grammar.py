"""Seeded command lines for every command, their grammar read off the options themselves.

A value is hostile, or one that the option may take: a number between its bounds, a word of its help
text, its default, a file that exists or one that does not. A new option is covered unasked; a new
command needs its line in ``SMALL``, which keeps what can run at all small.
"""

import math
import re

import typer.main

from flowsim.cli.main import app

#: What each command is given first, so that a line that runs ends within seconds.
SMALL = {
    "portrait": ["--resolution", "6", "--confirm", "4"],
    "scan": ["--grid", "3x2"],
    "continue": ["--over", "q=0.4:0.6:2"],
    "gaussian": ["--sigma", "0.5:2:2", "--samples", "5"],
    "compare": ["--grid", "2x1", "--d", "2", "--length", "2", "--steps", "20"],
    "train": ["--d", "2", "--length", "3", "--steps", "3", "--trainer", "gd"],
    "verify": ["--length", "2", "--d", "2", "--seeds", "1"],
    "noise": ["--temperature", "0.01", "--time", "1", "--seeds", "2", "--resolution", "3"],
    "chain": [],
    "info": [],
}
HOSTILE = [
    "", " ", "nan", "inf", "-inf", "1e400", "1e-320", "-1", "０", "½", "x" * 3000, "--", "-", "e=",
    "=1", "e=1,e=2", "1:2:3", "3:2:1", ":", "::", "4x", "0x0", "9" * 400 + "x2", "a\nb", "\udcff",
    "/dev/full", "/", ".", "..", "circle", "folder", "folder/none/x.nc", "readonly/x.png", "1_0",
    "1__0", "é", "\u200b", "1" * 30, "1:2:" + "9" * 5000, ",", "1,2", "1,2,3,4", "a=0.5", "-x.png",
    "n" * 246, "e=1:2",
    "kept.nc", "kept.png", "true", "None", "0.5:0.8", "[1]", "{}", "$(id)", "`id`", "%s", "\\",
]  # fmt: skip
#: Chains beyond p and q, for commands that have all of these options.
CHAINS = [
    ["--states", "3", "--p", "0.4"], ["--model", "states", "--states", "3", "--p", "0.9"],
    ["--kernel", "kernel.csv"], ["--kernel", "second.csv", "--order", "2"],
    ["--prior", "dirichlet", "--states", "3"], ["--prior", "doubly-stochastic"],
    ["--prior", "dirichlet", "--order", "2"], ["--prior", "kernel.csv:0.5,dirichlet:0.5"],
]  # fmt: skip
FILES = ["kept.nc", "kept.png", "new.png", "new.nc", "none.nc", "points.csv", "kernel.csv"]


COMMANDS = typer.main.get_command(app).commands
CHANCES = ["0.5", "0.8", "0.2", "0.3", "1e-9", "0.999999", "0.97", "0.04"]


def line(draw, broken):
    """One line: a command, its small sizes, a chain, and one to four more options.

    ``draw`` is a ``random.Random``; of a broken line at least one value is hostile.
    """
    name = draw.choice(sorted(COMMANDS if broken else SMALL))
    options = [p for p in COMMANDS[name].params if p.opts[0] != "--help"]
    words = [name, *SMALL.get(name, [])]
    words += chain(draw, options) if name != "info" and draw.random() < 0.9 else []
    chosen = draw.choices(options, k=draw.randint(1, 4 if broken else 2))
    for i, option in enumerate(chosen):
        words += given(draw, option, hostile=broken and i == 0)
    if name not in SMALL:  # what would wait for a visitor never starts
        words += ["--p", "x"]
    return words


def chain(draw, options):
    """Words for a chain: p and q, or what else the command's options describe."""
    named = {name for option in options for name in option.opts}
    others = [words for words in CHAINS if named.issuperset(words[::2])]
    if others and draw.random() < 0.4:
        return draw.choice(others)
    return ["--p", draw.choice(CHANCES), "--q", draw.choice(CHANCES)]


def given(draw, option, hostile):
    """An option and its value, in one word or in two."""
    named = [draw.choice(option.opts)] if option.opts[0].startswith("-") else []
    if getattr(option, "is_flag", False):
        return named + (["x"] if hostile and draw.random() < 0.2 else [])
    value = draw.choice(HOSTILE) if hostile else usual_value(draw, option)
    if named and draw.random() < 0.3:
        return [f"{named[0]}={value}"]
    return [*named, value]


def usual_value(draw, option):
    """One that the option may take, as far as can be seen from outside."""
    low, high = option.min, option.max
    if isinstance(low, int) or isinstance(high, int):
        return str(draw.randint(int(low or 0), int(min(high or 9, (low or 0) + 5))))
    if low is not None or high is not None:
        first = max(low or 0.0, 1e-12)
        last = min(high or 10.0, max(10.0, 2 * first))
        return repr(math.exp(draw.uniform(math.log(first), math.log(max(last, first)))))
    if option.metavar in ("FILE", "RECORD", "POINTS"):
        return draw.choice(FILES)
    words = re.findall(r"[A-Za-z0-9.:=-]+", f"{option.help or ''} {option.default}")
    return draw.choice([*words, draw.choice(CHANCES), "1", "2", "3x2", "w=0.3", "0.2:0.8:2"])
