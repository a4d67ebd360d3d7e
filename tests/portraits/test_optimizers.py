"""Where optimizers end elsewhere than the flow, on losses whose answer is known."""

import numpy as np
import pytest

import flowsim
from flowsim.portraits.optimizers import compare_optimizers


@pytest.mark.slow
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


def test_starts_still_on_their_way_do_not_end_alike():
    bowl = flowsim.from_loss(lambda x, y: x**2 + y**2, "bowl")
    record = compare_optimizers(bowl, {"x": (-1, 1), "y": (-1, 1)}, resolution=2, steps=3)
    assert (record["label"].sel(follower="adam") == 0).all()
    assert flowsim.summarize(record)["cells_all_agree"] == 0
    titles = [panel.get_title() for panel in flowsim.draw(record).axes]
    assert any("Adam" in title and "100 % undecided" in title for title in titles)


def test_a_field_along_which_the_loss_rises_is_refused():
    class Turning(flowsim.Model):
        coordinates = ("x", "y")

        def loss(self, theta):
            return theta[..., 0] + 0 * theta[..., 1]

        def field(self, theta):
            return theta.flip(-1) * theta.new_tensor([1.0, -1.0])

    with pytest.raises(flowsim.InputError, match="rises along its field, in 2 of 4 cells"):
        compare_optimizers(Turning(), {"x": (-1, 1), "y": (-1, 1)}, resolution=2)
