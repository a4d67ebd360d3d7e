"""No picture of the gallery is stale: model, command and picture are those of its record."""

import hashlib
import json
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from elsewhere import loaded

import flowsim

ROOT = Path(__file__).parents[2]
gallery = loaded(ROOT / "docs" / "gallery.py")
RECORD = json.loads(gallery.RECORD.read_text())


def test_the_page_is_what_the_script_writes_and_shows_every_picture():
    assert (ROOT / gallery.PAGE).read_text() == gallery.page()
    assert {name for name, *_ in [*gallery.PICTURES, *gallery.DRAWN]} == set(RECORD)
    assert set(RECORD) == {path.stem for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("line", [*gallery.PICTURES, *gallery.DRAWN], ids=lambda line: line[0])
def test_a_picture_is_of_its_model_and_command_or_lines(line):
    name, *how, _ = line
    about, picture = RECORD[name], gallery.FOLDER / f"{name}.png"
    assert about["source"] == gallery.source(name)
    assert about["command"] == (gallery.command(name, *how) if len(how) == 2 else how[0])
    assert about["command"].count("\n") < 15
    assert about["picture"] == hashlib.sha256(picture.read_bytes()).hexdigest()[:16]
    assert picture.stat().st_size < 80_000
    assert "last" in about or sum(about["shares"].values()) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("line", gallery.PICTURES[::3], ids=lambda line: line[0])
def test_the_shares_of_a_picture_come_out_again(line, monkeypatch):
    """Those of the cells, without the boundary; of every third picture."""
    monkeypatch.setattr(gallery.flowsim, "portrait", partial(flowsim.portrait, boundary=False))
    found = gallery.shares(gallery.portrait(*line[:3]))
    assert found == pytest.approx(RECORD[line[0]]["shares"], abs=0.01)


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("line", gallery.DRAWN, ids=lambda line: line[0])
def test_the_curves_of_a_picture_come_out_again(line, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    figure, last = gallery.drawn(line[1])
    plt.close(figure)
    np.testing.assert_allclose(last, RECORD[line[0]]["last"], rtol=1e-3, atol=1e-6)
