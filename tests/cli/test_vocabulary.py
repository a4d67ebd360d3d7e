"""One vocabulary on every command."""

import os
import subprocess
import sys

import pytest
from command import FLOWSIM, run

import flowsim
from flowsim.spec import BUILT_IN

CHAIN = ["--p", "0.5", "--q", "0.8"]
COMMANDS = ["portrait", "scan", "gaussian", "compare", "train", "verify", "info"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_in_both_spellings_fits_eighty_columns(tmp_path, command):
    short, long = run(command, "-h", cwd=tmp_path), run(command, "--help", cwd=tmp_path)
    assert short == long
    assert (short.returncode, short.stderr) == (0, "")
    assert f"Usage: flowsim {command}" in short.stdout
    assert max(map(len, short.stdout.splitlines())) <= 80


def test_version(tmp_path):
    assert run("--version", cwd=tmp_path) == (0, f"flowsim {flowsim.__version__}\n", "")


def test_the_package_runs_as_a_module(tmp_path):
    words = [sys.executable, "-m", "flowsim", "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Usage: flowsim [OPTIONS]" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("portrait --model ra", "rank-one"), ("scan --reso", "")],
)  # fmt: skip
def test_bash_completes_commands_options_and_values(tmp_path, typed, offered):
    words = f"flowsim {typed}"
    done = subprocess.run(
        [FLOWSIM], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "_FLOWSIM_COMPLETE": "complete_bash", "COMP_WORDS": words,
             "COMP_CWORD": str(words.count(" "))},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, offered)


MODEL_OPTIONS = ["--model", "--length", "--attention", "--untied", "--bias", "--fix"]


@pytest.mark.parametrize("command", ["portrait", "scan", "gaussian", "compare"])
def test_the_model_is_chosen_alike_everywhere(tmp_path, command):
    shown = run(command, "--help", cwd=tmp_path).stdout
    words = shown.split()
    assert [option for option in MODEL_OPTIONS if option not in words] == []
    assert run(command, *CHAIN, "--model", "softmax", cwd=tmp_path).stderr == (
        f"flowsim: Invalid value for '--model': must be one of {', '.join(BUILT_IN)}, "
        "or FILE.py:Class of your own, not 'softmax'.\n"
    )
