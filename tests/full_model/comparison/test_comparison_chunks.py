"""Comparisons in chunks: by processes and clusters, interrupted and resumed, the same bytes."""

from dataclasses import replace

import numpy as np
import pytest
from compared import POINTS
from elsewhere import pickled

from flowsim.errors import InputError
from full_model import Comparison, compare
from full_model.comparison import chunks


def test_an_interrupted_comparison_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_WITH_ATTENTION", 1)
    settings = Comparison(0.5, 0.8, "rank-one", d=3, length=3, noise=0.02)
    whole = compare(settings, POINTS)

    class Stop(Exception):
        pass

    def stop(done, total, where):
        seen.append(done)
        if done > 2:
            raise Stop

    seen, path = [], tmp_path / "state"
    with pytest.raises(Stop):
        compare(settings, POINTS, path, progress=stop)
    seen.clear()
    again = compare(
        settings, POINTS, path, resume=True, progress=lambda done, *_: seen.append(done)
    )
    assert seen[0] >= 2 and seen[-1] == 4  # what was finished is not computed again
    assert again.identical(whole)
    assert compare(settings, POINTS, path, resume=True).identical(whole)  # a finished one
    with pytest.raises(InputError, match="exists"):
        compare(settings, POINTS, path)
    for change, words in (({"length": 4}, "length is 3 there and 4 here"),
                          ({"noise_on": "others"}, "noise_on is 'all' there")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            compare(replace(settings, **change), POINTS, path, resume=True)
    with pytest.raises(InputError, match="points is"):
        compare(settings, POINTS + 0.1, path, resume=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="usable checkpoint"):
        compare(settings, POINTS, path, resume=True)


@pytest.mark.slow
def test_processes_give_the_numbers_of_one(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 2)
    pickled(monkeypatch)
    settings = Comparison(0.2, 0.3, "rank-one", "flow", d=2, length=3)
    one, two = (compare(settings, POINTS, jobs=jobs) for jobs in (1, 2))
    assert two.identical(one)
    together = compare(settings, POINTS[2:], jobs=1)
    for name in ("loss", "trained", "steps"):  # rows do not depend on their neighbours
        part = one[name].isel(point=slice(2, None)).values
        np.testing.assert_array_equal(part[: together.sizes["time"]] if name != "steps" else part,
                                      together[name].values)  # fmt: skip
    task = chunks.Chunks(settings, POINTS).task(0)._replace(versions="flowsim 0.0.1")
    with pytest.raises(InputError, match=r"flowsim 0\.0\.1"):
        chunks.run_task(task)


def test_sampled_batches_are_trained_together_and_resumed(tmp_path):
    settings = Comparison(
        0.5, 0.8, "rank-one", "adamw", d=3, length=4, noise=0.02, steps=20, batch=2
    )
    one = compare(settings, POINTS, tmp_path / "one")
    assert compare(settings, POINTS, jobs=2).identical(one)
    assert compare(settings, POINTS, tmp_path / "one", resume=True).identical(one)
    with pytest.raises(InputError, match="d is 3 there"):
        compare(replace(settings, d=2), POINTS, tmp_path / "one", resume=True)
    with pytest.raises(InputError, match="omit the scheduler"):
        compare(settings, POINTS, scheduler="tcp://127.0.0.1:9")
