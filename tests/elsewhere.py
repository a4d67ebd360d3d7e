"""Chunks done in this process, of which the work sees what a process of its own would see.

And work for processes, in a module that they import at once.
"""

import importlib.util
import os
import pickle
from concurrent.futures import Future
from contextlib import contextmanager

from flowsim.errors import InputError
from flowsim.scan import workers


@contextmanager
def _pickling(jobs):
    """Everything goes to the work and back as pickled bytes, one chunk at a time."""

    def submit(pickled):
        future = Future()
        try:
            future.set_result(workers.run_pickled(pickled))
        except Exception as error:
            future.set_exception(error)
        return future

    yield workers.Pool(submit, pickle.loads, lambda: 1)


def pickled(monkeypatch):
    """From now on ``jobs=2`` pickles instead of starting processes, 3 s each."""
    monkeypatch.setattr("flowsim.scan.workers.open_processes", _pickling)


def loaded(path):
    """A file that is no module of a package, run as one of its own name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_number(number):
    if number == 2:
        raise InputError("two is refused")
    return number


def of_death(number):
    if number == 1:
        os._exit(1)
    return number
