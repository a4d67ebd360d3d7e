"""The server of the explorer: on this machine only, every script from its own files."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from traceback import walk_tb

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.events import ClientReconnected, ConnectionLost
from bokeh.models import CustomJS, Div
from bokeh.server.server import Server

from flowsim.errors import InputError
from flowsim.explorer.layers import warm
from flowsim.explorer.link import from_query
from flowsim.explorer.page.jobs import Pools, open_pools
from flowsim.explorer.page.visit import Visit
from flowsim.explorer.view import View

HOST = "127.0.0.1"
#: Number of pages that the server serves at once.
MOST_PAGES = 16
#: Bytes of one message from a page; milliseconds after which a page that went away is forgotten,
#: and between two looks for such pages.
_LARGEST, _FORGOTTEN, _LOOK = 2**24, 3000, 500
#: Seconds after which a busy thread lets the page's own go on: it asks for its turn at every one of
#: PyTorch's operations, a hundred times for one picture.
_SWITCH = 2e-4


def open_port(port: int) -> int:
    """Return the port if it can be used, or a free one for 0; InputError if it cannot."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise InputError(
                f"port {port} cannot be used ({error.strerror}): choose another with --port, or 0 "
                "for any free one"
            ) from None
        return int(probe.getsockname()[1])


def _fill(usual: View, pools: Pools, visits: set[Visit], document: Document) -> None:
    """Build a visitor's page in a bokeh document, with the view that its address asks for.

    If too many pages are open, the document says so instead.
    """
    visits -= {visit for visit in visits if visit.jobs.closed}
    document.title = "flowsim explorer"
    if len(visits) >= MOST_PAGES:
        document.add_root(Div(text=f"{MOST_PAGES} pages are open; close one, then reload this."))
        return
    request = document.session_context.request if document.session_context else None
    view, full, problems = from_query(request.arguments if request else {}, usual)
    document.template = files("flowsim.explorer.page").joinpath("page.html").read_text("utf-8")
    visits.add(Visit(document, view, full, problems, pools))
    for event, shown in ((ConnectionLost, "block"), (ClientReconnected, "none")):
        code = f"document.getElementById('lost').style.display = '{shown}'"
        document.js_on_event(event, CustomJS(code=code))


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a log line is more than bokeh's surprise at messages of closed pages."""
    fault, trace = (record.exc_info or (None, None, None))[1:]
    within = [frame.f_globals.get("__name__") for frame, _ in walk_tb(trace)]
    return not (isinstance(fault, AssertionError) and within[-1:] == ["bokeh.server.connection"])


def serve(usual: View, port: int, ready: Callable[[str], None]) -> None:
    """Serve pages of this machine alone until Ctrl-C or SIGTERM, then end cleanly.

    ``usual`` is the view of an address that asks for nothing; ``ready`` is called with the address.
    """
    sys.setswitchinterval(_SWITCH)
    logging.getLogger("bokeh").setLevel(logging.ERROR)  # pages that go away are no news
    for name in ("bokeh.server.protocol_handler", "tornado.application"):
        logging.getLogger(name).addFilter(is_news)
    port, pools, visits = open_port(port), open_pools(), set[Visit]()
    server = Server(
        {"/": Application(FunctionHandler(partial(_fill, usual, pools, visits)))},
        port=port, address=HOST, allow_websocket_origin=[f"{HOST}:{port}", f"localhost:{port}"],
        websocket_max_message_size=_LARGEST, num_procs=1,
        unused_session_lifetime_milliseconds=_FORGOTTEN,
        check_unused_sessions_milliseconds=_LOOK,
    )  # fmt: skip
    loop = server.io_loop
    warm(usual)

    def warm_others() -> None:
        """Compile other models' engines where this machine has not, beside the first pages."""
        for name, options in (("uniform", {}), ("rank-one", {}), ("rank-one", {"attention": True})):
            warm(usual.with_model(name, **options))

    def end(*_: object) -> None:
        """Stop the server's loop, from a signal's handler."""
        loop.add_callback_from_signal(loop.stop)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.start()
        loop.add_callback(ready, f"http://{HOST}:{server.port}/")
        threading.Thread(target=warm_others, daemon=True).start()
        loop.start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.stop()
        for pool in pools.values():  # what runs ends at its next look at its page
            pool.shutdown(wait=False, cancel_futures=True)
        for task in asyncio.all_tasks(loop.asyncio_loop):
            task.cancel()
