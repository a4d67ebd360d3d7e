"""Tables of paths as people and spreadsheets save them."""

import numpy as np
import pytest
from command import assert_refused, run

import flowsim
from flowsim.drawing.overlay import path_columns

TABLES = {
    "named runs": b"x,y,run\n1,2,seed 1\n3,4,seed 1\n5,6,other\n",
    "numbered runs": b"run,x,y\n7,1,2\n7,3,4\n2,5,6\n",
    "byte order mark, semicolons, decimal commas": (
        b"\xef\xbb\xbfx;y;run\r\n1,0;2,0;a\r\n3;4;a\r\n5;6;b\r\n"
    ),
    "tabs, empty lines": b"x\ty\trun\n1\t2\ta\n3\t4\ta\n5\t6\tb\n\n\t\t\n",
    "steps and a run without numbers": (b"x,y,run\n,,a\n1,2,a\nnan,2,a\n3,4,a\n5,6,b\n,7,c\n"),
    "words beside": b"x,y,run,note\n1,2,a,fine\n3,4,a,\n5,6,b,3rd\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_runs_of_a_table_are_read(name, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(TABLES[name])
    x, y = path_columns(path, "x", "y")
    np.testing.assert_array_equal(x, [[1, 5], [3, np.nan]])
    np.testing.assert_array_equal(y, [[2, 6], [4, np.nan]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [("x,y,run\n", "has no rows"), ("", "it is empty"),
     ("x,y\n1,2\n3\n", "line 3 of .* has 1 cells, not 2"),
     ("x,y\n1,abc\n", "abc"), ("x,x\n1,2\n", "each once"), ("x,y\n,\n", "has no rows"),
     ('x,y\n"1,5",2\n', "column x of .*'1,5'"),
     ("x,y,run\n,nan,a\n", "needs numbers"),
     ("a,b\n1,2\n", "needs columns x and y; there are a, b")],
)  # fmt: skip
def test_what_is_no_table_of_paths_is_refused_in_a_sentence(text, reason, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(flowsim.InputError, match=reason):
        path_columns(path, "x", "y")


def test_a_table_without_rows_is_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "runs.csv").write_text("w,e,run\n")
    words = ["--p", "0.5", "--q", "0.8", "--overlay", "runs.csv", "--out", "a.png"]
    assert_refused(run("portrait", *words, cwd=tmp_path), "has no rows")
