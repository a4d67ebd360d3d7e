"""Files that appear whole, and together, or not at all."""

import pytest

from flowsim import InputError
from flowsim.records.netcdf import check_output, write_atomically, write_together


def writer(text):
    return lambda path: path.write_text(text)


def failing(path):
    path.write_text("half")
    raise OSError(28, "No space left on device")


def test_files_appear_together(tmp_path):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    write_together([(a, writer("one")), (b, writer("two"))])
    assert (a.read_text(), b.read_text()) == ("one", "two")
    assert sorted(tmp_path.iterdir()) == [a, b]


@pytest.mark.parametrize("order", [(writer("new"), failing), (failing, writer("new"))])
@pytest.mark.parametrize("there", [True, False])
def test_a_failure_leaves_neither_and_what_was_there_as_it_was(tmp_path, order, there):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    if there:
        a.write_text("old a")
        b.write_text("old b")
    bad = (a, b)[order.index(failing)]
    with pytest.raises(InputError, match=f"cannot write .*{bad.name}.*No space left"):
        write_together(list(zip((a, b), order, strict=True)))
    assert sorted(p.name for p in tmp_path.iterdir()) == (["a.txt", "b.txt"] if there else [])
    if there:
        assert (a.read_text(), b.read_text()) == ("old a", "old b")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interruption_leaves_what_was_there_and_nothing_else(tmp_path, error, there):
    def stopped(path):
        path.write_text("half")
        raise error

    target = tmp_path / "a.txt"
    if there:
        target.write_text("old")
    with pytest.raises((KeyboardInterrupt, InputError)):
        write_atomically(target, stopped)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"] * there


def test_long_names(tmp_path):
    path = tmp_path / ("n" * 251 + ".txt")
    check_output(path, "--out", (".txt",), False)
    write_atomically(path, writer("text"))
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match=r"--out: .*too long"):
        check_output(tmp_path / ("n" * 252 + ".txt"), "--out", (".txt",), False)
