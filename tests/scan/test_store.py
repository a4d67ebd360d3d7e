"""Scans to disk: whole or resumable, whatever happens while they run."""

import itertools
import os
import random
import resource
import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from fuzz.damage import KINDS, damaged

from flowsim import Cloud, Grid, InputError, Label, ModelSpec, Points, Rule, read_record
from flowsim.boundary.in_record import refine_scan
from flowsim.errors import Interrupted
from flowsim.scan import Scan, cell_centres, scan_basins, write_scan
from flowsim.scan import store as store_module
from flowsim.scan.follow import shaped
from flowsim.scan.plan import run_task
from flowsim.scan.record import scan_record
from flowsim.spec import model_from_attributes

AXES = {"e": cell_centres(-2, 2, 9), "w": cell_centres(-2, 2, 7)}
CANONICAL = ModelSpec.first("canonical")


def small(**changes):
    """A scan in which p, q and other arguments of the model may be changed, or be several."""
    settings = {"model": CANONICAL, "starts": Grid(AXES), "chunk": 16, **changes}
    given = {name: settings.pop(name) for name in ("p", "q", "length") if name in settings}
    over = {name: values for name, values in given.items() if isinstance(values, tuple)}
    one = {name: value for name, value in given.items() if name not in over}
    return Scan(**{**settings, "model": settings["model"].replace(**one), "over": over})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def parts_of(out):
    return out.with_name(f"{out.name}.parts")


@pytest.mark.parametrize("chunk", [0, 16])
def test_no_chunk_size_changes_a_label_or_moves_a_limit(tmp_path, chunk):
    write_scan(small(chunk=chunk), tmp_path / "a.nc")
    record = read_record(tmp_path / "a.nc", "scan")
    expected = scan_basins(CANONICAL.build(), AXES)
    assert set(record.variables) == set(expected.variables)
    for name in ("label", "status", "rule", "count", "share", "basin", "e", "w"):
        assert record[name].identical(expected[name]), name
    for name in ("limit_e", "limit_w", "limit_loss"):
        assert np.abs(record[name] - expected[name]).max() < 1e-12
        assert record[name].dims == ("e", "w")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.nc"]
    assert record.attrs["largest_drift_energy"] == float(record["drift_energy"].max()) < 1e-8
    counts = {label: int((record["label"] == label).sum()) for label in tuple(Label)[:4]}
    assert counts == {
        label: record.attrs[f"points_{label.name.lower()}"] for label in tuple(Label)[:4]
    }


def test_chains_and_spreads_become_dimensions(tmp_path):
    p, sigma = (0.2, 0.4), (0.3, 1.0, 2.0)
    starts = Cloud(("e", "w"), 11, sigma, seed=7)
    write_scan(small(p=p, q=(0.5, 0.9), starts=starts, chunk=7), tmp_path / "a.nc")
    record = read_record(tmp_path / "a.nc", "scan")
    assert record["label"].dims == ("p", "q", "sigma", "sample")
    assert record["share"].dims == ("p", "q", "sigma", "basin")
    assert record["start_e"].dims == ("p", "q", "sigma", "sample")
    assert record.attrs["draws"].startswith("anew for every p and q")
    for i, j in itertools.product(range(2), range(2)):
        model = CANONICAL.replace(p=p[i], q=(0.5, 0.9)[j]).build()
        rows = starts.block(0, 33, chain=2 * i + j)
        here = record.isel(p=i, q=j)
        assert np.array_equal(here["start_w"].to_numpy().ravel(), rows[:, 1])
        expected = scan_basins(model, Points(("e", "w"), rows))
        for name in ("label", "rule"):
            assert np.array_equal(here[name].to_numpy().ravel(), expected[name]), name
        assert np.abs(here["limit_w"].to_numpy().ravel() - expected["limit_w"]).max() < 1e-12
    first, alone = (
        record.isel(p=0, q=0),
        scan_basins(CANONICAL.replace(p=0.2, q=0.5).build(), starts),
    )
    for name in ("label", "count", "share_high", "start_w", "sigma"):
        assert np.array_equal(first[name], alone[name]), name


@pytest.mark.parametrize("drawn", [True, False])
def test_records_are_what_xarray_expects_in_memory_and_on_disk(tmp_path, drawn):
    starts = Cloud(("e", "w"), 40, 1.0, seed=1) if drawn else Grid(AXES)
    write_scan(small(starts=starts), tmp_path / "a.nc")
    stored = read_record(tmp_path / "a.nc")
    here = scan_basins(CANONICAL.build(), starts)
    assert stored.attrs["Conventions"] == "CF-1.11"
    for record in (stored, here):
        assert ("share_low" in record) == ("share_high" in record) == drawn
        reached = int(record["count"].sel(basin="global_minimum"))
        assert reached == int((record["label"] == Label.GLOBAL_MINIMUM).sum()) > 0
        assert float(record["share"].sel(basin="global_minimum")) == reached / record["label"].size
        for name, variable in record.variables.items():
            assert variable.attrs["long_name"], name
            assert "units" not in variable.attrs, name  # xarray's plots would say "[1]"
        for name in ("kind", "model", "coordinates", "p", "q", "regime", "bias", "starts"):
            assert np.array_equal(record.attrs[name], stored.attrs[name]), name
        assert repr(model_from_attributes(record.attrs)) == "CanonicalModel(p=0.5, q=0.8)"
        for library in ("torch", "torchdiffeq", "numpy", "scipy", "numba", "h5py", "xarray"):
            assert f"{library} " in record.attrs["versions"]
    for name in here.variables:
        assert stored[name].attrs.keys() == here[name].attrs.keys(), name


@pytest.mark.slow
@pytest.mark.turns
def test_a_sample_of_the_points_is_decided_again(tmp_path):
    """On every chain; and a label that torchdiffeq does not find is counted."""
    scan = small(p=(0.3, 0.6), confirm=40)
    record = read_record(write_scan(scan, tmp_path / "a.nc"))
    assert record.attrs["confirm_cells"] == record.attrs["confirm_agree"] == 40
    again = write_scan(scan, tmp_path / "b.nc")
    assert again.read_bytes() == (tmp_path / "a.nc").read_bytes()

    points = np.concatenate([run_task(scan.task(chunk)) for chunk in range(scan.chunks)])
    points["label"] = np.choose(points["label"], [0, 2, 1, 3])
    wrong = scan_record(scan, shaped(points, scan.shape), {}).attrs
    # starts on e = 0 < |w| may be saddles, as before
    assert 30 <= wrong["confirm_disagree"] == 40 - wrong["confirm_agree"]
    assert "confirm_cells" not in read_record(write_scan(small(), tmp_path / "d.nc")).attrs
    with pytest.raises(InputError, match="confirm must not be negative"):
        small(confirm=-1)


KILLS = """
import os, random, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from flowsim import *
from flowsim.scan import *

folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
axes = {"e": cell_centres(-2, 2, 12), "w": cell_centres(-2, 2, 16)}
scan = Scan(ModelSpec.first("canonical"), Grid(axes), chunk=8)
out, draw, passed = folder / "a.nc", random.Random(1), 0

def traced(last):
    # the lines of the modules that write are counted, and the process dies before that one
    def line(frame, event, _):
        global passed
        passed += event == "line"
        if passed > last:
            os.kill(os.getpid(), signal.SIGKILL)
        return line
    writes = "scan/store.py", "records/netcdf.py"
    return lambda frame, *_: line if frame.f_code.co_filename.endswith(writes) else None

sys.settrace(traced(10**9))
calm = write_scan(scan, folder / "calm.nc").read_bytes()
sys.settrace(None)
lines, passed, kills = passed, 0, 0
while kills < wanted or not out.exists():
    last = draw.randrange(lines)
    if (child := os.fork()) == 0:
        if kills < wanted:
            sys.settrace(traced(last))
        write_scan(scan, out, resume=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    kills += status != 0
    if out.exists():
        assert out.read_bytes() == calm
        if kills < wanted and not status:
            out.unlink()
write_scan(scan, out, resume=True)  # a kill after the record stood leaves its parts
assert sorted(os.listdir(folder)) == ["a.nc", "calm.nc"], os.listdir(folder)
print(kills)
"""


@pytest.mark.slow
def test_kills_change_no_byte(tmp_path):
    """SIGKILL between any two lines; half a write is what ``damaged`` does to the parts."""
    command = [sys.executable, "-c", KILLS, str(tmp_path), "12"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr


def test_a_second_run_on_the_same_output_stops_at_once(tmp_path):
    with FileLock(tmp_path / "a.nc.lock"):
        for resume in (False, True):
            with pytest.raises(InputError, match="another run is writing"):
                write_scan(small(), tmp_path / "a.nc", resume=resume)
    write_scan(small(), tmp_path / "a.nc")
    assert names(tmp_path) == ["a.nc"]


def stop_after(count):
    """A progress function that presses Ctrl-C at the given chunk."""
    chunks = itertools.count(1)

    def progress(labels):
        if next(chunks) == count:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def unfinished(tmp_path):
    out = tmp_path / "a.nc"
    with pytest.raises(Interrupted, match="--resume"):
        write_scan(small(), out, progress=stop_after(2))
    assert names(tmp_path) == ["a.nc.parts"]
    return out


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    path = write_scan(small(), tmp_path_factory.mktemp("calm") / "a.nc")
    return path.read_bytes()


def test_an_unfinished_scan_is_continued_where_it_stopped(unfinished, calm, monkeypatch):
    with pytest.raises(InputError, match="give --resume"):
        write_scan(small(), unfinished)
    computed = []
    follow = store_module.run_chunks

    def record(work, task, chunks, *rest):
        computed.extend(chunks)
        return follow(work, task, chunks, *rest)

    monkeypatch.setattr(store_module, "run_chunks", record)
    seen = []
    write_scan(small(), unfinished, resume=True, progress=lambda labels: seen.append(len(labels)))
    assert computed == [2, 3]
    assert sum(seen) == 63
    assert unfinished.read_bytes() == calm
    assert list(unfinished.parent.iterdir()) == [unfinished]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q": 0.7}, ["q: 0.8, now 0.7"]),
        ({"starts": Grid({**AXES, "e": AXES["e"] + 1})}, ["e: 9 values from -1.77", "-0.77"]),
        ({"starts": Cloud(("e", "w"), 63, 1.0)}, ["grid 9x7, now cloud", "seed: none, now 0"]),
    ],
)
def test_other_settings_are_refused_with_the_difference(unfinished, calm, changes, words):
    before = parts_of(unfinished).read_bytes()
    with pytest.raises(InputError) as refused:
        write_scan(small(**changes), unfinished, resume=True)
    for word in words:
        assert word.replace("from ", "") in str(refused.value)
    assert "p:" not in str(refused.value)
    assert parts_of(unfinished).read_bytes() == before
    write_scan(small(), unfinished, resume=True)
    assert unfinished.read_bytes() == calm
    with pytest.raises(InputError, match="record of other settings") as refused:
        write_scan(small(**changes), unfinished, resume=True)
    assert unfinished.read_bytes() == calm
    assert list(unfinished.parent.iterdir()) == [unfinished]


def test_a_finished_record_is_not_computed_again(tmp_path, calm, monkeypatch):
    out = tmp_path / "a.nc"
    out.write_bytes(calm)
    monkeypatch.setattr(store_module, "run_chunks", None)
    write_scan(small(), out, resume=True)
    with pytest.raises(InputError, match="exists"):
        write_scan(small(), out)
    out.write_bytes(b"something else")
    with pytest.raises(InputError, match="no valid digest"):
        write_scan(small(), out, resume=True)
    assert out.read_bytes() == b"something else"
    for at in (8, 3000, len(calm) - 200, len(calm) - 1):
        damaged = calm[:at] + bytes([calm[at] ^ 4]) + calm[at + 1 :]
        out.write_bytes(damaged)
        with pytest.raises(InputError, match="no valid digest"):
            write_scan(small(), out, resume=True)
        assert out.read_bytes() == damaged


@pytest.mark.parametrize(("seed", "count"), [(9, 12), pytest.param(10, 60, marks=pytest.mark.slow)])
def test_a_damaged_scan_ends_as_a_calm_one_or_is_refused(unfinished, calm, seed, count):
    """Resumed, it ends with the bytes of a calm one, or is refused; overwriting always helps."""
    parts, draw = parts_of(unfinished), random.Random(seed)
    whole = parts.read_bytes()
    for _ in range(count):
        parts.write_bytes(damaged(whole, draw.choice(KINDS), draw))
        try:
            write_scan(small(), unfinished, resume=True)
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 900
            write_scan(small(), unfinished, overwrite=True)
        assert unfinished.read_bytes() == calm
        assert names(unfinished.parent) == ["a.nc"]
        unfinished.unlink()


def test_chunks_that_changed_places_are_computed_again(unfinished, calm):
    path, scan = parts_of(unfinished), small()
    content, size = path.read_bytes(), 16 * scan.dtype.itemsize
    points = content.index(b"\n") + 1 + 32 * scan.chunks
    one, other = content[points : points + size], content[points + size : points + 2 * size]
    path.write_bytes(content[:points] + other + one + content[points + 2 * size :])
    write_scan(scan, unfinished, resume=True)
    assert unfinished.read_bytes() == calm


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"p": 0.5}', ""])
def test_damaged_settings_are_no_settings(unfinished, calm, text):
    parts_of(unfinished).write_text(text)
    with pytest.raises(InputError, match=r"cannot be read|other settings \(p: "):
        write_scan(small(), unfinished, resume=True)
    write_scan(small(), unfinished, overwrite=True)
    assert unfinished.read_bytes() == calm


def as_folder(path):
    path.mkdir()
    (path / "inside").write_text("kept")


def as_link(path):
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("suffix", ["parts", "lock"])
@pytest.mark.parametrize("odd", [as_folder, as_link, os.mkfifo])
def test_odd_things_beside_the_output_are_one_sentence_or_no_matter(unfinished, calm, suffix, odd):
    path, other = unfinished.with_name(f"a.nc.{suffix}"), Path("/etc/hostname").read_bytes()
    path.unlink(missing_ok=True)
    odd(path)
    for keywords in ({"resume": True}, {"overwrite": True}):
        try:
            write_scan(small(), unfinished, **keywords)
        except InputError as error:
            assert "a.nc" in str(error)
            assert "\n" not in str(error)
            assert not unfinished.exists()
        else:
            assert unfinished.read_bytes() == calm
            break
    assert Path("/etc/hostname").read_bytes() == other
    if path.is_dir():
        assert (path / "inside").read_text() == "kept"


def test_a_full_disk_is_one_sentence_and_costs_nothing(tmp_path, calm):
    """A limit on the size of files stands in for it: too small for settings, parts, the record."""
    out, usual = tmp_path / "a.nc", resource.getrlimit(resource.RLIMIT_FSIZE)
    whole, model = partial(write_scan, small(), out, resume=True), CANONICAL.build()
    refined = partial(
        refine_scan, out, model, 3, None, 1e-12, lambda _: nullcontext(lambda _: None)
    )

    def refused(size, write):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
        try:
            with pytest.raises(InputError, match=r"cannot write .*File too large"):
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)

    for size in (300, 700, 5000, 9000):
        refused(size, whole)
    assert whole().read_bytes() == calm
    for more in (10, 3000, 20_000):
        refused(len(calm) + more, refined)
    assert out.read_bytes() == calm


def test_a_scan_that_cannot_fit_is_refused_before_it_starts(tmp_path):
    wide = np.linspace(-3, 3, 3_000_000)
    with pytest.raises(InputError, match=r"9000000000000 points need about \S+ GiB"):
        write_scan(small(starts=Grid({"e": wide, "w": wide}), chunk=0), tmp_path / "a.nc")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_vanishes_is_one_sentence(tmp_path):
    folder = tmp_path / "somewhere"
    folder.mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_scan(small(), folder / "a.nc", progress=lambda labels: shutil.rmtree(folder))
    folder.mkdir()

    def lose_the_parts(labels):
        (folder / "a.nc.parts").unlink()

    with pytest.raises(InputError, match="cannot write"):
        write_scan(small(), folder / "a.nc", progress=lose_the_parts)
    with pytest.raises(InputError, match="cannot read"):
        write_scan(small(chunk=100), folder / "a.nc", progress=lose_the_parts)
    with pytest.raises(InputError, match="does not exist"):
        write_scan(small(), tmp_path / "nowhere" / "a.nc")


def test_a_scan_that_torchdiffeq_decides(tmp_path):
    axes = {"e": cell_centres(-2, 2, 6), "w": cell_centres(-2, 1, 5)}
    usual = Scan(CANONICAL, Grid(axes))
    other = Scan(CANONICAL, Grid(axes), integrator="torchdiffeq")
    assert "integrator" not in {**usual.settings(), **usual.attributes()}
    record = read_record(write_scan(other, tmp_path / "scan.nc"), "scan")
    assert (record["rule"] == Rule.REFERENCE).all()
    assert record.attrs["integrator"] == "torchdiffeq"
    alone = scan_basins(CANONICAL.build(), axes, integrator="torchdiffeq")
    assert alone["limit_w"].equals(record["limit_w"])
    ours = read_record(write_scan(usual, tmp_path / "ours.nc"), "scan")
    assert record["label"].equals(ours["label"])
    assert abs(record["limit_loss"] - ours["limit_loss"]).max() < 1e-8
    with pytest.raises(InputError, match="one of flowsim, torchdiffeq, not 'odeint'"):
        Scan(CANONICAL, Grid(axes), integrator="odeint")


@pytest.mark.parametrize("error, reason", [
    (OSError(5, "Input/output error"), "Input/output error"),
    (NotImplementedError("no locks on this system"), "no locks on this system"),
])  # fmt: skip
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, error, reason):
    def acquire(self):
        raise error

    monkeypatch.setattr(store_module.FileLock, "acquire", acquire)
    with pytest.raises(InputError, match=f"cannot lock .*: {reason}"):
        write_scan(small(), tmp_path / "scan.nc")
