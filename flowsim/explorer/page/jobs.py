"""Background jobs of a page; a newer request cancels the older, closing the page all."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bokeh.document import Document

from flowsim.errors import InputError
from flowsim.explorer.view import Stop, Stopped

#: A generator that runs in a thread: it takes a function that returns whether to stop.
Work = Callable[[Stop], Iterable[Any]]
#: Threads of all pages together: for planes and orbits, and for training.
_THREADS = {"plane": 2, "edge": 1, "training": 2}
#: Seconds within which a page is closed whose document is being taken apart.
_TAKEN_APART = 2.0


#: Thread pools that all pages of a server share, by the kind of work.
Pools = dict[str, ThreadPoolExecutor]


def open_pools() -> Pools:
    """Make the thread pools of a server, by the kind of work."""
    return {name: ThreadPoolExecutor(count, thread_name_prefix=f"flowsim-{name}")
            for name, count in _THREADS.items()}  # fmt: skip


class Jobs:
    """The jobs of one page, which run in threads; of each kind at most one is alive.

    ``failed`` is called with a sentence when a job fails.
    """

    def __init__(self, document: Document, pools: Pools, failed: Callable[[str], None]) -> None:
        self.document, self.pools, self.failed = document, pools, failed
        self._stops: dict[str, threading.Event] = {}
        self._gone = threading.Event()

    @property
    def closed(self) -> bool:
        """Return whether the page is closed."""
        return self._gone.is_set()

    def start(
        self, kind: str, work: Work, show: Callable[[Any], None], pool: str = "plane",
        done: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Run work in a thread in place of the kind's former job, and show each result in order.

        ``show`` is called with each result on the page's thread, and ``done`` at the end, also
        after an error; neither once the job was stopped. ``pool`` names the threads.
        """
        self.stop(kind)
        if self.closed:
            return
        event = self._stops[kind] = threading.Event()
        self.pools[pool].submit(self._run, event, work, show, done)

    def stop(self, kind: str) -> None:
        """Stop the job of that kind, if there is one; it shows nothing more."""
        if kind in self._stops:
            self._stops.pop(kind).set()

    def close(self) -> None:
        """Stop all jobs for good: the page is gone."""
        self._gone.set()
        for kind in list(self._stops):
            self.stop(kind)

    def _run(
        self, event: threading.Event, work: Work, show: Callable[[Any], None],
        done: Callable[[], None],
    ) -> None:  # fmt: skip
        """Run a job in its thread until ``event`` is set; show its results, report its errors."""
        try:
            for result in work(event.is_set):
                if event.is_set():
                    return
                self._on_page(event, partial(show, result))
        except Stopped:
            return
        except InputError as error:
            self._on_page(event, partial(self.failed, f"{error}"))
        except Exception:  # a fault of this program: say so, and let the page live
            traceback.print_exc(file=sys.stderr)
            self._on_page(event, partial(self.failed, "this could not be computed, see the shell"))
        self._on_page(event, done)

    def _on_page(self, event: threading.Event, call: Callable[[], None]) -> None:
        """Call ``call`` on the page's own thread, unless the job was stopped meanwhile."""

        def if_wanted() -> None:
            if not event.is_set():
                call()

        if self.closed:
            return
        try:
            self.document.add_next_tick_callback(if_wanted)
        except AttributeError:  # a document that is being taken apart, before its page is closed
            if not self._gone.wait(_TAKEN_APART):
                raise
