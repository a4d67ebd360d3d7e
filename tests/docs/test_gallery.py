"""No picture of the gallery is stale: model, command and picture are those of its record."""

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
gallery = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gallery)
RECORD = json.loads(gallery.RECORD.read_text())


def test_the_page_is_what_the_script_writes_and_shows_every_picture():
    assert (ROOT / gallery.PAGE).read_text() == gallery.page()
    assert {name for name, *_ in gallery.PICTURES} == set(RECORD)


@pytest.mark.parametrize("line", gallery.PICTURES, ids=lambda line: line[0])
def test_a_picture_is_of_its_model_and_command(line):
    name, kind, text, _ = line
    about, picture = RECORD[name], gallery.FOLDER / f"{name}.png"
    assert about["source"] == gallery.source(name)
    assert about["command"] == gallery.command(name, kind, text)
    assert about["picture"] == hashlib.sha256(picture.read_bytes()).hexdigest()[:16]
    assert picture.stat().st_size < 80_000
    assert sum(about["shares"].values()) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("line", gallery.PICTURES, ids=lambda line: line[0])
def test_the_shares_of_a_picture_come_out_again(line):
    found = gallery.shares(gallery.portrait(*line[:3]))
    assert found == pytest.approx(RECORD[line[0]]["shares"], abs=0.01)
