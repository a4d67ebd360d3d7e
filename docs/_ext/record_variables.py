"""The directive ``record-variables``: what a record of each kind holds, read from small ones."""

from collections.abc import Callable

import xarray as xr
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import flowsim
import full_model
from flowsim.records.attributes import described

HEAD = ("variable", "dimensions", "type", "meaning")


def _training() -> xr.Dataset:
    settings = full_model.RunSettings(
        full_model.Architecture(4, 4), full_model.Recipe("gd", steps=2), (0.5,), (0.8,)
    )
    return full_model.train(settings)[0]


def small_records() -> dict[str, xr.Dataset]:
    """A small record of every kind."""
    plane = flowsim.model("canonical", 0.5, 0.8)
    makers: dict[str, Callable[[], xr.Dataset]] = {
        "portrait": lambda: flowsim.portrait(plane, resolution=8),
        "phase space": lambda: flowsim.portraits.phase_space(flowsim.model("linear", 0.5, 0.8)),
        "scan": lambda: flowsim.scan(plane, {"e": [0.5, 1.0], "w": [-1.0, 0.5]}),
        "gaussian": lambda: flowsim.gaussian(plane, [0.5, 1.0], samples=4),
        "comparison": lambda: full_model.compare(
            full_model.Comparison(0.5, 0.8), full_model.grid_points(2, 2)
        ),
        "training": _training,
    }
    return {kind: described(make()) for kind, make in makers.items()}


def rows(record: xr.Dataset) -> list[tuple[str, str, str, str]]:
    """Name, dimensions, type and meaning of every variable."""
    found = []
    for name, variable in record.variables.items():
        meaning = str(variable.attrs.get("long_name", ""))
        if "flag_meanings" in variable.attrs:
            meaning = f"{meaning}: {variable.attrs['flag_meanings'].replace(' ', ', ')}".strip(": ")
        dims = ", ".join(map(str, variable.dims)) or "none"
        found.append((str(name), dims, str(variable.dtype), meaning))
    return found


class RecordVariables(SphinxDirective):
    """A section with a table for every kind of record."""

    def run(self) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for kind, record in small_records().items():
            section = nodes.section(ids=[nodes.make_id(kind)], names=[kind])
            section += nodes.title(text=kind)
            section += _table(rows(record))
            section += nodes.paragraph(text=f"Attributes: {', '.join(sorted(record.attrs))}.")
            sections.append(section)
        return sections


def _table(lines: list[tuple[str, str, str, str]]) -> nodes.table:
    group = nodes.tgroup(cols=len(HEAD))
    group += [nodes.colspec(colwidth=1) for _ in HEAD]
    head, body = nodes.thead(), nodes.tbody()
    for part, cells in ((head, [HEAD]), (body, lines)):
        for line in cells:
            row = nodes.row()
            row += [nodes.entry("", nodes.paragraph(text=text)) for text in line]
            part += row
    group += [head, body]
    return nodes.table("", group)


def setup(sphinx: Sphinx) -> dict[str, bool]:
    sphinx.add_directive("record-variables", RecordVariables)
    return {"parallel_read_safe": True}
