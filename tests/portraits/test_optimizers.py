"""Where optimizers end elsewhere than the flow, on losses whose answer is known."""

import numpy as np
import pytest

import flowsim
from flowsim.portraits.optimizers import compare_optimizers


def test_large_steps_leave_a_narrow_well_that_the_flow_stays_in():
    """Curvatures are 2 on the left and 60 on the right: steps above 2/60 cannot rest there."""
    wells = flowsim.from_loss(
        lambda x, y: -((-((x + 1) ** 2)).exp()) - 0.5 * (-60 * (x - 1) ** 2).exp() + y**2 / 2,
        "two widths",
    )
    window = {"x": (-1.5, 1.1), "y": (-0.5, 0.5)}
    record = compare_optimizers(wells, window, resolution=6, steps=800)
    share = record["share_elsewhere"]
    assert share.sel(follower="flow") == 0 and share.sel(follower="gd") > 0
    names = record["label"].attrs["flag_meanings"].split()
    at = record["label"].sel(y=record.y[2])
    left = {who: names[at.sel(follower=who)[0].item()] for who in ("flow", "gd", "adam", "sign")}
    assert len(set(left.values())) == 1
    summary = flowsim.summarize(record)
    assert summary["cells"] == 36 and 0 < summary["cells_all_agree"] < 36
    assert np.isclose(summary["elsewhere_than_flow"]["gd"], float(share.sel(follower="gd")))
    assert len(flowsim.draw(record).axes) >= 8


def test_nothing_else_goes_with_the_comparison():
    with pytest.raises(flowsim.InputError, match="seven panels"):
        bowl = flowsim.from_loss(lambda x, y: x**2 + y**2, "bowl")
        record = compare_optimizers(bowl, resolution=2, steps=100)
        flowsim.draw(record, ax=flowsim.draw(record).axes[0])
