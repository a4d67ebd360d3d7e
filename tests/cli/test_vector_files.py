"""Every command that draws writes vector files too."""

import xml.etree.ElementTree as ElementTree

import pytest

CHAIN = ("--p", "0.5", "--q", "0.8")
DRAWS = {
    "portrait": ("portrait", *CHAIN, "--resolution", "6"),
    "space": ("portrait", *CHAIN, "--model", "linear", "--view", "3d"),
    "trained": ("portrait", *CHAIN, "--model", "rank-one", "--length", "3", "--resolution", "3",
                "--optimizer", "gd", "--steps", "5"),
    "compare": ("compare", *CHAIN, "--grid", "2x2", "--d", "2", "--length", "2"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("name", DRAWS)
def test_svg_and_pdf(flowsim, tmp_path, name):
    code, _, errors = flowsim(*DRAWS[name], "--out", "x.svg")
    assert code in (0, 3), errors
    picture = ElementTree.parse(tmp_path / "x.svg").getroot()
    assert picture.tag.endswith("}svg") and float(picture.get("width").removesuffix("pt")) > 100
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 10
    code, _, errors = flowsim("portrait", "--from", "x.nc", "--out", "again.pdf")
    assert code in (0, 3), errors
    content = (tmp_path / "again.pdf").read_bytes()
    assert content.startswith(b"%PDF") and content.rstrip().endswith(b"%%EOF")
