"""``--from RECORD``: the figure of a stored record, and its summary; nothing is computed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from flowsim.cli.groups import FIGURES, FigureFiles
from flowsim.cli.output import Printing, report, require_file, write_figure
from flowsim.errors import InputError


def redraw(
    source: Path,
    files: FigureFiles,
    printing: Printing,
    energy: bool = False,
    show: str = "label",
    kinds: Sequence[str] = (),
) -> None:
    """Draw a record under --out, by default beside it, and print what it holds.

    Args:
        source: the record.
        files, printing: the command's options.
        energy, show: as of ``flowsim.draw``.
        kinds: what the record may be; by default any kind.

    Raises:
        InputError: no record of these kinds, or a figure that cannot be drawn or written.
    """
    from flowsim.records.atomic import check_output
    from flowsim.records.netcdf import read_record

    began = time.perf_counter()
    require_file(source)
    if not source.name:
        raise InputError(f"--from needs the name of a record, not {str(source)!r}")
    figure = files.out or source.with_suffix(".png")
    check_output(figure, "--out", FIGURES, files.overwrite)
    record = read_record(source)
    kind = str(record.attrs["kind"])
    if kinds and kind not in kinds:
        raise InputError(
            f"{str(source)!r} is a record of the kind {kind!r}: flowsim portrait --from draws it; "
            "here --from redraws only what this command computes, and starts are --points"
        )
    if energy and "energy" not in record:
        raise InputError("--energy draws the conserved energy of the canonical model; omit it here")
    if show != "label" and show not in record:
        raise InputError(f"--show {show} needs the record of a scan made with --fraction")
    try:
        summary = write_figure(record, figure, energy=energy, show=show)
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # anything may be missing of what another program wrote
        found = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{str(source)!r} cannot be drawn: it does not hold what such a record does ({found})"
        ) from error
    report(kind, summary, {"figure": figure, "record": source}, began, printing)
