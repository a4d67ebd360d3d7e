"""A record of every kind that is drawn, made when a test first asks for it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from flowsim import (
    Cloud,
    Grid,
    ModelSpec,
    Points,
    gaussian,
    model,
    phase_space,
    portrait,
    read_record,
    refine_boundary,
)
from flowsim.scan import Scan, cell_centres, write_scan
from full_model import Architecture, Comparison, Recipe, RunSettings, compare, grid_points, train

OF = model("canonical", 0.5, 0.8)
AXES = {"e": cell_centres(-2, 2, 6), "w": cell_centres(-2, 2, 8)}
SPACE = {"e": cell_centres(0, 2, 3), "w": cell_centres(-2, 2, 4), "a": cell_centres(-1, 1, 3)}


def scanned(name, starts, **options):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scan.nc"
        return read_record(write_scan(Scan(ModelSpec.first(name), starts, **options), path))


def compared():
    points = grid_points(2, 2)
    return compare(Comparison(0.5, 0.8, "rank-one", d=2, length=3, horizon=0.5), points)


def trained():
    settings = RunSettings(Architecture(2, 3), Recipe("gd", steps=3), (0.5,), (0.8,), seeds=(0, 1))
    record, _ = train(settings)
    return record.assign_attrs(kind="training")


CLOUD = Cloud(("e", "w"), 40, 1.0)
MAKERS = {
    "portrait": lambda: portrait(OF, resolution=8, confirm=4),
    "phase space": lambda: phase_space(model("linear", 0.5, 0.8)),
    "grid": lambda: scanned("canonical", Grid(AXES), fraction=0.01),
    "slices": lambda: scanned("linear", Grid(SPACE), fraction=0.01),
    "cloud": lambda: scanned("canonical", CLOUD, fraction=0.01),
    "points": lambda: scanned("canonical", Points(("e", "w"), np.array([[1.0, -1], [1, 1]]))),
    "curve": lambda: scanned("canonical", CLOUD, over={"p": (0.1, 0.5, 0.9)}),
    "boundary": lambda: refine_boundary(OF, AXES, levels=1),
    "surface": lambda: refine_boundary(model("linear", 0.5, 0.8), SPACE, levels=0),
    "gaussian": lambda: gaussian(OF, np.array([0.5, 1.0]), 60),
    "comparison": compared,
    "training": trained,
}


class Made(dict):
    def __missing__(self, kind):
        self[kind] = MAKERS[kind]()
        return self[kind]


RECORDS = Made()
