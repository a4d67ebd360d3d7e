"""The explorer in a real browser, with real mouse and keyboard events."""

import signal
import time

import pytest
from visitor import Served, Visitor

from flowsim import read_record

pytestmark = [pytest.mark.slow, pytest.mark.turns]


def test_a_click_starts_an_orbit_that_ends_in_its_basin(visit):
    at = visit()
    at.reads("Click anywhere in the square")
    at.click(-1.2, 0.5)
    at.reads("reaches the global minima at w = -1.353, e = 0.722, loss 0.6190")
    at.click(0.5, 1.0)
    at.reads("is trapped in a bad local minimum")
    at.link_has("start=0.5,-1.2&start=1.0,0.5")
    at.page.mouse.move(*at.place(1.0, 2.0))
    at.page.mouse.down()
    at.page.wait_for_timeout(600)
    at.page.mouse.up()
    at.reads("Orbit 3 from w = 1.000")  # a click that was held for long
    at.press("Undo")
    at.reads("Orbit 2 from w = 0.500")
    at.press("Undo")
    at.reads("Orbit 1 from w = -1.200")
    at.link_has("start=1.0,0.5", there=False)
    at.press("Clear all")
    at.reads("Click anywhere in the square")
    at.press("Undo")
    at.reads("Orbit 1 from w = -1.200")


def test_a_start_is_dragged_and_the_plane_is_moved(visit):
    at = visit("?start=1.0,0.5&start=0.5,-1.2")
    at.reads("Orbit 2 from")
    at.page.mouse.move(*at.place(0.5, 1.0))
    at.page.wait_for_timeout(500)
    at.reads("w = 0.500, e = 1.000: loss 0.8357; its cell is trapped")
    at.drag((0.5, 1.0), (-1.5, 1.0))
    at.link_has("start=1.0,-1.5&start=0.5,-1.2")
    at.reads("Orbit 1 from w = -1.500, e = 1.000 reaches the global minima")
    at.press("Undo")
    at.reads("Orbit 1 from w = 0.500")
    at.drag((0.5, 1.0), (-1.5, 1.0), hold=500)
    at.link_has("start=1.0,-1.5&start=0.5,-1.2")
    at.press("Undo")
    at.reads("Orbit 1 from w = 0.500")
    at.page.get_by_text("moves", exact=True).click()
    at.drag((0.0, -2.0), (1.5, -2.0))
    at.link_has("w=-4.5:1.5&e=-3.0:3.0")
    at.press("Reset")
    at.link_has("w=-4.5", there=False)


def test_the_plane_is_square_and_nothing_moves_it(visit):
    at = visit("?model=rank-one")
    for size in ((1280, 720), (1024, 768), (820, 1180)):
        at.page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
        at.page.wait_for_timeout(500)
        (left, top), (right, bottom) = at.place(-3, 3), at.place(3, -3)
        assert abs((right - left) - (bottom - top)) < 4 and right < size[0]
        assert at.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    times = at.page.locator("#times")
    before = at.place(0, 0), times.bounding_box()
    at.click(1.0, 2.0)
    at.reads("Orbit 1 from w = 1.000")
    at.reads("trapped in bad local minima")  # a legend row comes
    field = at.page.get_by_label("Start at w, e")
    field.fill("here")
    field.press("Enter")
    at.reads("Write a start as two numbers")
    assert (at.place(0, 0), times.bounding_box()) == before


def test_sliders_move_the_plane_by_mouse_and_keyboard(visit):
    at = visit()
    handle = at.page.locator(".noUi-handle").first
    box = handle.bounding_box()
    at.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    at.page.mouse.down()
    at.page.mouse.move(box["x"] - 90, box["y"] + 5, steps=10)
    at.page.mouse.up()
    at.reads("< 1")  # p + q, since q is 0.8
    at.reads("each followed by the flow")
    handle.focus()
    for _ in range(3):
        at.page.keyboard.press("ArrowRight")
    at.link_has("p=0.")
    at.page.keyboard.press("End")
    at.link_has("p=0.99")
    at.reads("p + q = 1.79 > 1")


def test_a_drag_zooms_and_a_double_click_goes_back(visit):
    at = visit()
    at.drag((-1.5, 0.1), (-0.3, 1.3))
    at.link_has("w=-1.5:-0.3&e=0.1:1.3")
    at.reads("each followed by the flow")
    at.page.mouse.dblclick(*at.place(-1.0, 0.5))
    at.link_has("w=-1.5", there=False)
    at.link_has("start=", there=False)  # neither click of the two counts as a start
    at.page.mouse.move(*at.place(0.0, 0.0))
    at.page.mouse.wheel(0, -120)
    at.link_has("w=-")
    at.press("Zoom back")
    at.link_has("w=-", there=False)


def test_a_plane_of_its_own_has_its_own_starts_and_trains_nothing(visit):
    at = visit("?start=0.5,-1.2")
    at.page.get_by_label("Model").select_option(label="Induction: kernels drawn anew")
    at.reads("Click anywhere in the square")
    at.click(1.0, 2.0)
    at.reads("Orbit 1 from alpha = 1.0")
    at.reads("plateau")
    at.reads("valley")
    shown = """name => Bokeh.documents[0].get_model_by_name("plane").renderers
        .find((r) => r.data_source.name === name).data_source.data"""
    assert len(at.page.evaluate(shown, "curves valley")["xs"]) == 2
    assert len(at.page.evaluate(shown, "points")["x"]) >= 1  # the saddle
    assert not at.page.get_by_role("button", name="Train", exact=True).is_visible()
    assert not at.page.get_by_text("p: chance of 1 after 0").is_visible()


OWN = """
import flowsim

class Well(flowsim.Model):
    coordinates = ("x", "y")
    def __init__(self, g=0.2):
        self.g = g
    def loss(self, theta):
        x, y = theta.unbind(-1)
        return (x**2 - 1) ** 2 / 4 + y**2 / 2 + self.g * x
"""


def test_a_model_of_the_users_own(browser, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    served = Served("--model", f"{tmp_path / 'mine.py'}:Well", "--window", "x=-2:2,y=-2:2")
    try:
        at = Visitor(browser, served.address)
        at.reads("go to minimum 1 (loss −0.209)")
        at.reads("● minimum")
        at.reads("✕ saddle")
        at.click(0.5, 1.0)
        at.reads("goes to minimum 2")
        at.reads("Orbit 1 from x = 0.500, y = 1.000")
        at.page.locator(".noUi-handle:visible").first.focus()
        at.page.keyboard.press("End")
        at.link_has("set-g=0.8")
        at.reads("100 % go to minimum 1")
        assert at.errors == [] and at.foreign == []
    finally:
        code, errors = served.end()
    assert (code, errors) == (0, "")


def test_files_and_commands(visit, tmp_path):
    at = visit("?start=0.5,-1.2")
    at.reads("reaches the global minima at")
    (tmp_path / "mine.csv").write_text("e,w\n1,1\n0.5,1.2\n")
    at.page.get_by_label("Lay a path over it").set_input_files(tmp_path / "mine.csv")
    named = at.page.get_by_text("mine", exact=True)
    named.wait_for()
    for button, suffix in (("Save PNG", "png"), ("Save SVG", "svg"), ("Save record", "nc")):
        with at.page.expect_download() as download:
            at.press(button)
        assert download.value.suggested_filename == f"explored_canonical_p0.5_q0.8.{suffix}"
        download.value.save_as(tmp_path / f"page.{suffix}")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "page.svg").read_text()[:2000]
    record = read_record(tmp_path / "page.nc")
    assert float(record["orbit_w"][0, 0]) == -1.2 and record.attrs["oracle_wrong"] == 0
    assert record["path_name"].item() == "mine" and record["path_w"][:, 0].values.tolist() == [
        1,
        1.2,
    ]
    at.press("Commands")
    at.reads("flowsim portrait --p 0.5 --q 0.8")
    at.reads("flowsim.portrait(model")
    at.page.get_by_text("Close", exact=True).click()
    at.press("Clear all")
    named.wait_for(state="detached")


def test_the_link_restores_the_page(visit):
    first = visit("?model=uniform&length=6&p=0.3&q=0.4&fix-a=0.5&start=0.5,-1.2&backward=1")
    first.reads("Orbit 1 from w = -1.200")
    first.link_has("length=6")
    query = first.page.url.partition("?")[2]
    second = visit(f"?{query}")
    second.reads("Orbit 1 from w = -1.200")
    second.link_has("length=6")
    assert second.page.url == first.page.url
    second.reads("each followed by the flow")
    second.press("Undo")
    second.reads("Click anywhere in the square")


def test_hostile_links_show_the_usual_page(visit):
    at = visit("?p=2&model=%3Cscript%3Ealert(1)%3C/script%3E&start=nan,1&steps=99999999999")
    at.reads("The link was not followed in full")
    at.reads("p + q = 1.3 > 1")


def test_a_closed_page_stops_its_training(visit, served):
    at = visit("?start=1.0,0.5&train=sgd&steps=8000&positions=32&d=16")
    at.reads("Orbit 1 from")
    at.press("Train")
    at.reads("Training:")
    before = served.seconds()
    time.sleep(1)
    assert served.seconds() > before + 0.05  # it is at work
    at.page.goto("about:blank")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        before = served.seconds()
        time.sleep(1)
        if served.seconds() < before + 0.05:
            return
    pytest.fail("training went on after its page was closed")


def test_the_page_says_when_the_server_has_ended(browser):
    server = Served("--p", "0.2", "--q", "0.3")
    at = Visitor(browser, server.address)
    at.reads("p + q = 0.5 < 1")
    code, errors = server.end(signal.SIGTERM)
    assert code == 0 and errors == ""
    at.reads("flowsim explore has ended")
    at.page.context.close()
