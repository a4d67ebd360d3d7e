"""Records of models that drawing has never heard of: other names, other axes, other words."""

import json

import pytest
from figure_texts import words_of
from recorded import RECORDS

from flowsim import ModelSpec, draw, read_record, summarize, write_record
from flowsim.records.attributes import described

WORDS = {
    "title": "my model of spin",
    "subtitle": "a field of 3 units\n(measured in the morning)",
    "axes": ("spin", "tilt"),
    "end_names": json.dumps({"global_minimum": "falls to the left"}),
}
LONG_NAMES = {"spin": "spin s"}


def renamed(record, words=WORDS):
    """The record of another model: in spin and tilt instead of w and e, on no chain."""
    new = {"w": "spin", "e": "tilt", "a": "drift"}
    names = {}
    for name in (*map(str, record.variables), *map(str, record.dims)):
        head, _, tail = name.rpartition("_")
        if tail in new:
            names[name] = f"{head}_{new[tail]}" if head else new[tail]
    record = record.rename(names)
    for name in ("p", "q", "regime", "bias", "attention", "tied"):
        record.attrs.pop(name, None)
    ranges = {f"{new[n]}_range": record.attrs.pop(f"{n}_range") for n in new
              if f"{n}_range" in record.attrs}  # fmt: skip
    axes = list(new.values())[: len(record.attrs["coordinates"])]
    for variable in record.variables.values():
        variable.attrs.pop("long_name", None)
    for name in ("title", "subtitle", "end_names"):
        record.attrs.pop(name, None)
    own = {"model": "mine.py:Spin", "coordinates": axes}
    return described(record.assign_attrs({**own, **words}, **ranges), LONG_NAMES)


KINDS = ("portrait", "grid", "boundary", "gaussian", "phase space")


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_an_unknown_model_is_stored_drawn_and_summarized(kind, tmp_path):
    if kind != "boundary":  # stored within a scan alone
        write_record(renamed(RECORDS[kind]), tmp_path / "a.nc")
        record = read_record(tmp_path / "a.nc")
    else:
        record = renamed(RECORDS[kind])
    said = words_of(draw(record))
    assert "My model of spin" in said
    assert "field of 3 units" in said
    if kind != "gaussian":
        assert "spin s" in said
        assert "tilt" in said and "$tilt$" not in said  # a word is no letter of mathematics
    for former in ("Canonical", "canonical", "feed-forward", "embedding", "Markov", "$e"):
        assert former not in said
    summary = summarize(record)
    assert (summary["title"], summary["subtitle"]) == (WORDS["title"], WORDS["subtitle"])
    assert "p" not in summary


@pytest.mark.parametrize("kind", ["portrait", "grid"])
def test_ends_have_the_names_that_the_model_gave_them(kind):
    said = words_of(draw(renamed(RECORDS[kind])))
    assert "falls to the left" in said
    assert "trapped in bad local minima" in said


def test_held_values_are_those_that_the_record_lists():
    record = renamed(RECORDS["portrait"])
    record = record.assign_attrs(held="drift", drift=0.25)
    assert "at drift = 0.25" in draw(record).axes[0].get_title()
    assert summarize(record)["fixed"] == {"drift": 0.25}


SPECS = [
    ModelSpec.first("canonical"),
    ModelSpec.first("uniform", length=3, bias="dynamic"),
    ModelSpec.first("rank-one", length=3, attention=True, tied=False),
    ModelSpec.first("states", p=0.3, states=3),
    ModelSpec.first("states", p=0.3, length=2, attention=True, states=3),
    ModelSpec.first("induction", length=4),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_model_says_its_words(spec):
    model = spec.build()
    title, _, subtitle = model.title.partition("\n")
    assert title and subtitle and "model" not in subtitle
    assert ("bias as a coordinate" in subtitle) == ("dynamic" in spec.settings().values())
    if spec.get("q") is not None:
        assert "$p$ = 0.5, $q$ = 0.8: $p + q$ = 1.3 > 1" in subtitle
