"""Damaged, changed and forged records: refused in one sentence, or read unchanged."""

import random

import h5py
import numpy as np
import pytest
import xarray as xr
from fuzz.damage import KINDS, damaged

import flowsim
from flowsim.landscape.labels import Label
from flowsim.records import trial
from flowsim.records.content import LABELS
from flowsim.records.netcdf import open_record, write_record
from flowsim.records.seal import LENGTH, seal, sealed, unseal

CHAIN = flowsim.BinaryChain(0.5, 0.8)


@pytest.fixture(scope="module")
def record():
    axes = {"e": flowsim.cell_centres(-2, 2, 5), "w": flowsim.cell_centres(-2, 2, 4)}
    return flowsim.scan_basins(flowsim.CanonicalModel(CHAIN), axes, fraction=1e-3)


@pytest.fixture(scope="module")
def content(record, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.nc"
    write_record(record, path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, content):
    out = tmp_path / "a.nc"
    out.write_bytes(content)
    return out


def refused(path, **keywords):
    """The sentence with which a file is refused, by both readers."""
    with pytest.raises(flowsim.InputError) as found:
        flowsim.read_record(path, **keywords)
    sentence = str(found.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 600
    return sentence


@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_changes_what_is_read(path, content, kind):
    draw = random.Random(kind)
    for _ in range(
        6 if kind in ("cut", "nothing left") else 40
    ):  # of the seal nothing is left: a process for each
        other = damaged(content, kind, draw)
        if other == content:
            continue
        path.write_bytes(other)
        refused(path)


def test_a_record_that_was_changed_on_purpose_is_opened_knowingly(path, record):
    with h5py.File(path, "r+") as file:
        file.attrs["note"] = "seen"
    assert "check=False" in refused(path)
    changed = flowsim.read_record(path, check=False)
    assert changed.attrs["note"] == "seen"
    xr.testing.assert_equal(changed, record)
    write_record(changed, path)
    assert flowsim.read_record(path).attrs["note"] == "seen"
    xr.load_dataset(path, engine="h5netcdf").to_netcdf(path, engine="h5netcdf")
    assert sealed(path) is None
    assert "check=False" in refused(path)
    xr.testing.assert_equal(flowsim.read_record(path, check=False), record)


def test_other_programs_read_a_sealed_record(path, record):
    assert sealed(path) is True
    assert path.read_bytes()[-LENGTH:].startswith(b"\nflowsim record, sha256 ")
    xr.testing.assert_equal(xr.load_dataset(path, engine="h5netcdf"), record)


def test_what_its_seal_vouches_for_is_read_in_this_process(path, record, monkeypatch):
    monkeypatch.setattr(trial.subprocess, "run", lambda *_, **__: pytest.fail("another process"))
    xr.testing.assert_equal(flowsim.read_record(path), record)
    xr.testing.assert_equal(flowsim.read_record(path, check=False), record)


def test_labels_have_one_meaning():
    assert tuple(label.name.lower() for label in Label) == LABELS
    assert [label.value for label in Label] == list(range(len(LABELS)))


FORGED = {
    "a foreign label": lambda r: r.label.values.__setitem__((0, 0), 9),
    "exchanged meanings": lambda r: r.label.attrs.update(
        flag_meanings="unresolved local_minimum global_minimum saddle"
    ),
    "no meanings": lambda r: r.rule.attrs.clear() or r.label.attrs.clear(),
    "an axis in disorder": lambda r: r.update({"e": r.e.values[::-1]}),
    "an axis that is not finite": lambda r: r.update({"e": [0.0, 1.0, 2.0, 3.0, np.nan]}),
    "a share of two": lambda r: r.share.values.__setitem__(0, 2.0),
    "a negative count": lambda r: r["count"].values.__setitem__(0, -1),
    "p of two": lambda r: r.attrs.update(p=2.0),
    "p of text": lambda r: r.attrs.update(p="half"),
    "several p": lambda r: r.attrs.update(p=[0.1, 0.2]),
    "points of text": lambda r: r.attrs.update(points_saddle="many"),
    "a range that falls": lambda r: r.attrs.update(e_range=[1.0, -1.0]),
    "a kind that is a number": lambda r: r.attrs.update(kind=3),
    "another kind": lambda r: r.attrs.update(kind="recipe"),
    "a later schema": lambda r: r.attrs.update(schema=99),
    "a schema of text": lambda r: r.attrs.update(schema="2"),
    "a negative time": lambda r: r.hitting_time.values.__setitem__((0, 0), -1.0),
    "a time without end": lambda r: r.hitting_time.values.__setitem__((0, 0), np.inf),
    "a time beyond all": lambda r: r.settling_time.values.__setitem__((0, 0), 1e300),
    "a length of zero": lambda r: r.attrs.update(length=0),
    "one state": lambda r: r.attrs.update(states=1),
    "a coordinate that is held at no number": lambda r: r.attrs.update(v=np.nan),
    "the other regime": lambda r: r.attrs.update(regime="p + q < 1"),
    "the other regime of states": lambda r: (
        r.attrs.pop("q"),
        r.attrs.update(states=3, p=0.9, regime="p < 2/3"),
    ),
    "steps in disorder": lambda r: r.update({"step": ("step", np.array([3, 2, 1], "u8"))}),
    "a boundary at no place": lambda r: r.update({"boundary_e": ("vertex", [np.nan, np.nan])}),
    "labels of text": lambda r: r.update({"label": (r.label.dims, r.label.values.astype(str))}),
    "no label": lambda r: r.__delitem__("label"),
    "labels that are floats": lambda r: r.update(
        {"label": (r.label.dims, r.label.values * 1.0, r.label.attrs)}
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_record_is_refused_whoever_sealed_it(record, tmp_path, forged):
    forgery = record.copy(deep=True)
    FORGED[forged](forgery)
    write_record(forgery, tmp_path / "a.nc")
    refused(tmp_path / "a.nc")
    refused(tmp_path / "a.nc", check=False)


def test_labels_of_text_are_refused_before_they_are_read(record, tmp_path):
    text = record.label.to_numpy().astype(str)
    write_record(record.assign(label=(("e", "w"), text)), tmp_path / "a.nc")
    with pytest.raises(flowsim.InputError, match=r"its label holds .*, not numbers"):
        open_record(tmp_path / "a.nc")


@pytest.mark.parametrize("p", [0.3, np.nextafter(0.3, 1), 0.4])
def test_a_regime_at_the_threshold_is_that_of_rounding(record, tmp_path, p):
    """Whoever wrote p + q = 1 may have rounded; an honest record is read."""
    other = record.assign_attrs(p=p, q=0.7, regime="p + q = 1")
    write_record(other, tmp_path / "a.nc")
    if p < 0.35:
        flowsim.read_record(tmp_path / "a.nc")
    else:
        assert "which its p contradicts" in refused(tmp_path / "a.nc")


def test_a_comparison_knows_the_losses_that_decided_it(tmp_path):
    loss = np.array([[0.7, np.nan, 0.6], [np.nan, np.nan, 0.6]])
    codes = {"flag_values": np.arange(4, dtype="i1"), "flag_meanings": " ".join(LABELS)}
    found = {
        "loss": (("time", "point"), loss),
        "predicted": ("point", np.array([1, 2, 0], "i1"), codes),
        "outcome": ("point", np.array([1, 0, 0], "i1"), codes),
    }
    record = xr.Dataset(found, attrs={"kind": "comparison", "schema": 2})
    write_record(record, tmp_path / "a.nc")
    xr.testing.assert_equal(flowsim.read_record(tmp_path / "a.nc"), record)
    record.outcome.values[1] = 2
    write_record(record, tmp_path / "a.nc")
    assert "its loss is unknown where its outcome is decided" in refused(tmp_path / "a.nc")


def test_values_that_were_never_stored_take_no_memory(tmp_path, path):
    with h5py.File(path, "r+") as file:
        del file["limit_loss"]
        made = file.create_dataset("limit_loss", (5, 4, 10**9), dtype="f8", chunks=(1, 1, 1000))
        made[0, 0, :10] = 1.0
    assert "declares" in refused(path, check=False)


def _into(file, name, *words):
    layout = h5py.VirtualLayout((5, 4), "i1")
    layout[:] = h5py.VirtualSource(*words, name=name, shape=(5, 4))
    file.create_virtual_dataset(name, layout)


#: What leads away from a file's bytes, or in a circle; each takes the place of the labels.
LEADING_AWAY = {
    "bytes of another file": lambda f, other: f.create_dataset(
        "label", (5, 4), "i1", external=[(str(other), 0, 20)]
    ),
    "a variable of another file": lambda f, other: _into(f, "label", str(other)),
    "itself": lambda f, _: _into(f, "label", "."),
    "a link to another file": lambda f, other: f.__setitem__(
        "label", h5py.ExternalLink(str(other), "label")
    ),
    "a link in the file": lambda f, _: f.__setitem__("label", h5py.SoftLink("/rule")),
    "a link from a group": lambda f, other: f.create_group("a/b").__setitem__(
        "c", h5py.ExternalLink(str(other), "/")
    ),
}


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("kind", LEADING_AWAY)
def test_nothing_in_a_record_leads_elsewhere(tmp_path, path, content, kind, signed):
    """Neither where a seal vouches for the bytes nor where another process reads them first."""
    other = tmp_path / "other.nc"
    other.write_bytes(content)
    unseal(path)
    with h5py.File(path, "r+") as file:
        del file["label"]
        LEADING_AWAY[kind](file, other)
    if signed:
        seal(path)
    assert "another place" in refused(path, check=False)


def test_a_variable_without_dimensions_is_read_without_a_word(path, recwarn):
    unseal(path)
    with h5py.File(path, "r+") as file:
        codes = dict(file["label"].attrs)
        del file["label"]
        file["label"] = np.zeros((7, 3), "i1")
        for name in ("flag_values", "flag_meanings"):
            file["label"].attrs[name] = codes[name]
    seal(path)
    flowsim.read_record(path)
    assert not [str(warning.message) for warning in recwarn]


@pytest.mark.parametrize("nested", [True, False])
def test_a_record_has_no_thousand_groups_or_variables(path, nested):
    unseal(path)
    with h5py.File(path, "r+") as file:
        group = file
        for number in range(1000):
            made = group.create_group(f"g{number}")
            group = made if nested else group
    seal(path)
    assert "more than 500 groups and variables" in refused(path)


def test_the_wrong_place(tmp_path):
    assert refused(tmp_path / "missing.nc").startswith("no such file: ")
    assert "not a file" in refused(tmp_path)
    loop = tmp_path / "loop.nc"
    loop.symlink_to(loop)
    refused(loop)


def test_a_record_of_another_kind_names_both(path):
    assert "not a flowsim portrait or training record" in _kinds(path, "portrait", "training")
    assert "its kind is scan" in _kinds(path, "portrait")
    with open_record(path, "scan") as lazy:
        assert lazy.attrs["kind"] == "scan"


def _kinds(path, *kinds):
    with pytest.raises(flowsim.InputError) as found:
        flowsim.read_record(path, *kinds)
    return str(found.value)
