"""What the page hands out: its lines, run as they are, give what the page showed."""

from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import pytest
from command import run_line

from flowsim import Label, draw, read_record
from flowsim.explorer.export import command_lines, explored_record, python_lines
from flowsim.explorer.starts import cloud_shares, follow_start
from flowsim.explorer.training import FullSettings, Run, training
from flowsim.explorer.view import GaussianCloud, Start, View, Window

pytestmark = [pytest.mark.slow, pytest.mark.turns]
STARTS = (Start(0.5, -1.2), Start(1.0, 0.5))
PAGES = {
    "canonical": (View(window=Window(-2.5, 0.5, 0.0, 2.0)), FullSettings(steps=20)),
    "untied": (replace(View().with_model("untied"), fixed=(("u", 0.9),)), FullSettings(steps=20)),
    "rank-one": (View().with_model("rank-one", tied=False, length=4),
                 FullSettings("adamw", d=4, noise=0.05, steps=20, seed=3)),
    "states": (View().with_model("states", states=3).with_arguments(p=0.9),
               FullSettings("sgd", length=3, noise=0.05, steps=20)),
}  # fmt: skip


@pytest.fixture(params=PAGES)
def page(request):
    """A view with starts, its full settings, the orbits, and a run from the first start."""
    view, full = PAGES[request.param]
    view = replace(view, starts=STARTS)
    orbits = [follow_start(view, start) for start in STARTS]
    run = Run(STARTS[0], full, orbits[0].label)
    for _ in training(view, run, lambda: False):
        pass
    return view, full, orbits, run


def test_the_python_lines(page, tmp_path, monkeypatch):
    view, full, orbits, run = page
    monkeypatch.chdir(tmp_path)
    code, shown = python_lines(view, full, [run.start]), {}
    for many in ("208", "64", "32"):
        code = code.replace(f"resolution={many}", "resolution=6")
    with redirect_stdout(StringIO()) as printed:
        exec(compile(code, "explored.py", "exec"), shown)
    assert str([orbit.label.name for orbit in orbits]) in printed.getvalue()
    assert (tmp_path / "explored.png").stat().st_size > 1000
    loss = shown["record"]["loss"].to_numpy()[:, 0]
    assert loss[0] == pytest.approx(run.curve[0].loss, rel=1e-9)
    assert loss[-1] == pytest.approx(run.curve[-1].loss, rel=1e-9)


@pytest.mark.parametrize("page", ["rank-one", "states"], indirect=True)
def test_the_shell_lines(page, tmp_path):
    view, full, orbits, run = page
    lines = command_lines(view, full, [run.start])
    for many in ("208", "64", "32"):
        lines = lines.replace(f"--resolution {many}", "--resolution 6")
    for line in lines.splitlines():
        done = run_line(line, tmp_path)
        assert done.returncode in (0, 3), (line, done.stderr)
    (portrait,) = tmp_path.glob("portrait_*.nc")
    drawn = read_record(portrait)
    firsts = [(float(drawn[f"orbit_{view.y}"][0, i]), float(drawn[f"orbit_{view.x}"][0, i]))
              for i in range(drawn.sizes["orbit"])]  # fmt: skip
    assert firsts == [(start.y, start.x) for start in view.starts]
    scan = read_record(tmp_path / "orbits.nc")
    assert scan["label"].values.tolist() == [orbit.label for orbit in orbits]
    if view.spec.name == "states":
        assert "Python only" in lines and not (tmp_path / "train.nc").exists()
    else:
        loss = read_record(tmp_path / "train.nc")["loss"].to_numpy()[:, 0]
        assert loss[-1] == pytest.approx(run.curve[-1].loss, rel=1e-9)


def test_a_record_names_the_command_and_the_link():
    view = replace(View(), starts=STARTS[:1], cloud=GaussianCloud(0.3, -0.9, 0.3))
    record = explored_record(view, [follow_start(view, STARTS[0])], [])
    assert record.attrs["command"] == (
        r"printf 'e,w\n0.5,-1.2\n' > starts.csv"
        " && flowsim portrait --p 0.5 --q 0.8 --resolution 208 --points starts.csv"
    )
    bare = explored_record(replace(view, starts=()), [], [])
    assert bare.attrs["command"] == "flowsim portrait --p 0.5 --q 0.8 --resolution 208"
    assert "start=0.5,-1.2" in record.attrs["link"] and "cloud=0.3,-0.9,0.3" in record.attrs["link"]
    assert record["orbit_label"].values.tolist() == [Label.GLOBAL_MINIMUM]
    (*_, found) = cloud_shares(view)
    assert record["cloud_label"].values.tolist() == found.label.tolist()
    figure = draw(record)
    (legend,) = figure.legends or [figure.axes[0].get_legend()]
    trapped = 100 * found.share(Label.LOCAL_MINIMUM)[0]
    assert any(f"of the cloud {trapped:.1f} % trapped" in x.get_text() for x in legend.get_texts())
