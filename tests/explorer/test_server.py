"""The server of the explorer: how it begins and ends, and whom it answers."""

import asyncio
import signal
import subprocess
import threading
import time
import urllib.request

import pytest

pytest.importorskip("bokeh", reason='Bokeh is not installed: pip install ".[explore]"')

from bokeh.client import pull_session
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect
from visitor import Served

from flowsim import InputError
from flowsim.explorer.page.jobs import Jobs, open_pools


class Page:
    """In place of a Bokeh document: calls at once what is to be called on the page."""

    def add_next_tick_callback(self, call):
        call()


def test_a_newer_job_replaces_an_older_one_and_a_closed_page_stops_all():
    pools, shown, failed = open_pools(), [], []
    jobs = Jobs(Page(), pools, failed.append)
    begun, ended = threading.Event(), threading.Event()

    def endless(stop):
        begun.set()
        try:
            while not stop():
                time.sleep(0.001)
                yield "old"
        finally:
            ended.set()

    jobs.start("plane", endless, lambda _: None)
    assert begun.wait(10)
    done = threading.Event()
    jobs.start("plane", lambda stop: ["new"], shown.append, done=done.set)
    assert done.wait(10) and ended.wait(10) and shown == ["new"]

    def refuses(stop):
        raise InputError("no such thing")

    jobs.start("other", refuses, shown.append)
    begun.clear(), ended.clear()
    jobs.start("plane", endless, lambda _: None)
    assert begun.wait(10)
    jobs.close()
    assert ended.wait(10) and failed == ["no such thing"]
    jobs.start("plane", lambda stop: ["late"], shown.append)
    for pool in pools.values():
        pool.shutdown(wait=False, cancel_futures=True)
    assert shown == ["new"]


@pytest.mark.slow
@pytest.mark.turns
def test_only_its_own_pages_get_a_socket_and_ctrl_c_ends_it():
    server = Served()
    with urllib.request.urlopen(server.address, timeout=60) as answer:
        page = answer.read().decode()
    assert "flowsim explorer" in page and "https://" not in page and "//cdn" not in page
    socket_address = server.address.replace("http", "ws") + "ws"

    async def connect(origin):
        headers = {"Origin": origin, "Sec-WebSocket-Protocol": "bokeh, none"}
        await websocket_connect(HTTPRequest(socket_address, headers=headers))

    for origin in ("http://example.org", "http://127.0.0.1:1", "null"):
        with pytest.raises(HTTPClientError) as refused:
            asyncio.run(connect(origin))
        assert refused.value.code == 403
    port = int(server.address.split(":")[2].strip("/"))
    listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True).stdout
    assert f"127.0.0.1:{port}" in listening and f"0.0.0.0:{port}" not in listening
    code, errors = server.end(signal.SIGINT)
    assert code == 0 and "Traceback" not in errors


HOSTILE = [
    ("p", "value", 1e9), ("q", "value", float("nan")), ("model", "value", "gpt"),
    ("place", "value", "<script>" * 10**4), ("length", "value", -5), ("drag", "active", 7),
    ("options", "active", [99]), ("d", "value", 10**9), ("steps", "value", 10**12),
    ("noise", "value", float("inf")),
]  # fmt: skip
KEYS = [
    {"x": [], "y": [], "key": []}, {"x": ["a"], "y": [None], "key": [3]},
    {"x": [float("nan")], "y": [1e300], "key": ["Enter"]}, {"zz": [1]},
    {"x": [1e300], "y": [0.0], "key": ["+"]}, {"x": [0.5], "y": [1.0], "key": ["no key"]},
]  # fmt: skip


def shown(address, session):
    """What the server holds of a page: chain, window, starts and settings of training."""
    again = pull_session(session_id=session.id, url=address)
    try:
        one = again.document.get_model_by_name
        plane = one("plane")
        starts = next(r for r in plane.renderers if r.data_source.name == "starts").data_source
        window = plane.x_range.start, plane.x_range.end, plane.y_range.start, plane.y_range.end
        values = [one(name).value for name in ("p", "q", "model", "d", "steps", "noise")]
        return (*values, *window, list(starts.data["x"]))
    finally:
        again.close()


@pytest.mark.slow
@pytest.mark.turns
def test_what_a_socket_may_not_ask_for_changes_nothing():
    server = Served()
    try:
        address = server.address.rstrip("/")
        hostile, other = (pull_session(url=address) for _ in range(2))
        usual = shown(address, other)
        assert usual == (0.5, 0.8, "canonical", 8, 4000, 0.0, -3.0, 3.0, -3.0, 3.0, [])
        one = hostile.document.get_model_by_name
        for name, attribute, value in HOSTILE:
            setattr(one(name), attribute, value)
            hostile.force_roundtrip()
        for data in KEYS:
            one("place").tags[0].data = data
            hostile.force_roundtrip()
        time.sleep(1)  # orbits and planes begin a little later
        assert shown(address, hostile) == usual and shown(address, other) == usual
        assert hostile.connected and other.connected
        one("place").tags[0].data = {"x": [0.5], "y": [1.0], "key": ["Enter"]}
        hostile.force_roundtrip()
        deadline = time.monotonic() + 30
        while shown(address, hostile)[-1] != [0.5] and time.monotonic() < deadline:
            time.sleep(0.2)
        assert (
            shown(address, hostile)[-1] == [0.5] and shown(address, other) == usual
        )  # the page still works
        hostile.close(), other.close()
    finally:
        code, errors = server.end()
    assert code == 0 and "Traceback" not in errors
