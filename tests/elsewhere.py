"""Chunks done in this process, of which the work sees what a process of its own would see."""

import pickle


def _pickling(jobs, work, task, chunks):
    """Everything goes to the work and back as pickled bytes."""
    for chunk in chunks:
        function, argument = pickle.loads(pickle.dumps((work, task(chunk))))
        yield chunk, pickle.loads(pickle.dumps(function(argument)))


def pickled(monkeypatch):
    """From now on ``jobs=2`` pickles instead of starting processes, 3 s each."""
    monkeypatch.setattr("flowsim.scan.workers.by_processes", _pickling)
