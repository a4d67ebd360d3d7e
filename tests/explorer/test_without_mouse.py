"""The explorer with the keyboard alone, on a laptop's screen, and without colour."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from flowsim.explorer.page.controls import model_words
from flowsim.explorer.view import View

pytestmark = [pytest.mark.slow, pytest.mark.turns]

#: The element in focus, through shadow roots: its words, its outline's width and its outline.
FOCUS = """() => {
    let at = document.activeElement;
    while (at.shadowRoot && at.shadowRoot.activeElement) at = at.shadowRoot.activeElement;
    const style = getComputedStyle(at), root = at.getRootNode();
    const label = at.labels && at.labels.length ? at.labels[0].textContent : "";
    const words = [at.getAttribute("aria-label"), label, at.textContent].filter(Boolean).join(" ");
    return [words, parseFloat(style.outlineWidth), style.outlineStyle];
}"""


class Typist:
    """A visitor without a mouse."""

    def __init__(self, at):
        self.at, self.keys = at, at.page.keyboard

    def tab_to(self, words, key="Tab"):
        """Press Tab until the element with such words is in focus; every focus must be seen."""
        passed = []
        for _ in range(60):
            self.keys.press(key)
            found, width, style = self.at.page.evaluate(FOCUS)
            if "flowsim explore has ended" in found:  # the page itself, between its ends
                continue
            for _ in range(20):  # some outlines grow
                if width >= 2 and style != "none":
                    break
                self.at.page.wait_for_timeout(50)
                _, width, style = self.at.page.evaluate(FOCUS)
            else:
                pytest.fail(f"{found!r} does not show that it is in focus")
            if re.search(words, found):
                return
            passed.append(found[:30])
        pytest.fail(f"no Tab leads to {words!r}, but to {passed}")

    def press(self, *names):
        for name in names:
            self.keys.press(name)


def test_all_of_it_goes_with_the_keyboard_alone(visit, tmp_path):
    at = visit()
    typist = Typist(at)
    typist.tab_to("^p$")
    typist.press("ArrowRight", "ArrowRight", "ArrowRight")
    at.link_has("p=0.53&q=0.8")
    typist.tab_to("Canonical")
    typist.press("ArrowDown")
    at.link_has("model=uniform")
    typist.press("ArrowUp")
    at.link_has("model=canonical")
    typist.tab_to("The plane.")
    typist.press("ArrowDown", "Shift+ArrowLeft", "Enter")
    at.reads("Orbit 1 from w = -1.700, e = 1.100 reaches the global minima")
    typist.press(*["Shift+ArrowRight"] * 5, "Enter")
    at.reads("Orbit 2 from w = 0.800, e = 1.100 is trapped in a bad local minimum")
    typist.press("+")
    at.link_has("w=-0.7:2.3&e=-0.4:2.6")
    typist.press("-")
    at.link_has("w=-0.7", there=False)
    typist.tab_to("^Train$")
    typist.press("Enter")
    at.reads("is trapped (bad local minimum), just as the flow says.")
    typist.tab_to("Undo", "Shift+Tab")
    typist.press("Enter")
    at.reads("Orbit 1 from w = -1.700")
    typist.tab_to("throws a cloud")
    typist.press("Space")
    typist.tab_to("The plane.")
    typist.press("Enter", "+")
    at.reads("95 % interval")
    at.link_has("cloud=1.1,0.8,0.375")
    with at.page.expect_download() as download:
        typist.tab_to("Save PNG", "Shift+Tab")
        typist.press("Enter")
    download.value.save_as(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


SHOWN = """() => ["plane", "loss", "logit gap", "coordinates"].map((name) => {
    const model = Bokeh.documents[0].get_model_by_name(name);
    const all = (views) => views.flatMap((v) => [v, ...all(v.child_views ?? [])]);
    const found = all(Object.values(Bokeh.index.roots ?? Bokeh.index))
        .find((v) => v.model === model);
    const box = found.el.getBoundingClientRect();
    return [box.left, box.right, box.top, box.bottom, box.width, box.height];
})"""


def test_a_laptops_screen_shows_the_plane_and_all_time_plots(visit):
    height = 650
    at = visit("?model=rank-one&attention=1&start=0.5,-1.2")
    at.page.set_viewport_size({"width": 1366, "height": height})
    at.reads("Orbit 1 from")
    for name, words in model_words(View()):
        at.page.get_by_label("Model").select_option(label=words)
        at.link_has(f"model={name}")
        wide = at.page.evaluate("document.documentElement.scrollWidth")
        tall = at.page.evaluate("document.documentElement.scrollHeight")
        assert wide <= 1366 and tall <= height, name
        inner = "(() => { const x = document.getElementById('choose');"
        assert at.page.evaluate(inner + "return x.scrollWidth <= x.clientWidth })()"), name
        shown = at.page.evaluate(SHOWN)
        if name in ("induction", "memory"):
            del shown[2]  # they have no logit gap
        for left, right, top, bottom, width, deep in shown:
            assert left >= 0 and right <= 1366 and top >= 0 and bottom <= height, name
            assert width > 380 and deep > 80, name


def test_basins_and_ends_are_told_apart_without_colour(visit):
    at = visit("?start=0.5,-1.2&start=1.0,0.5")
    at.reads("Orbit 2 from")
    at.page.add_style_tag(content="html { filter: grayscale(1) }")
    picture = np.asarray(Image.open(io.BytesIO(at.page.screenshot())).convert("RGB"), float)
    assert np.ptp(picture, axis=-1).max() < 3  # no colour is left
    grey = picture[..., 0]

    def patch(w, e):
        x, y = (round(value) for value in at.place(w, e))
        return grey[y - 30 : y + 30, x - 30 : x + 30]

    reached, trapped = patch(-2.4, 2.4), patch(2.4, 2.4)
    assert np.median(reached) - np.median(trapped) > 25  # another grey
    light = (trapped > np.median(trapped) + 30).mean()
    assert 0.1 < light < 0.6 and (reached > np.median(reached) + 12).mean() < 0.02  # and hatched
    marks = at.page.evaluate("""() => Bokeh.documents[0].get_model_by_name("plane").renderers
        .find((r) => r.data_source.name === "ends").data_source.data.marker""")
    assert list(marks) == ["circle", "triangle"]
