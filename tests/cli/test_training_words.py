"""What is said of a training run."""

import numpy as np
import xarray as xr
from matplotlib.text import Text

import flowsim
from full_model import Architecture, Recipe, RunSettings, train


def test_a_training_run_says_what_it_was_trained_on_and_where_it_ended():
    chain = flowsim.BinaryChain(0.5, 0.8)
    low, high = chain.entropy_rate, chain.stationary_entropy
    losses = [low + 0.01 * (high - low), high, (low + high) / 2, np.nan]
    for recipe, words, remark in (
        (
            Recipe.named("adamw-papers", steps=2, batch=3),
            "AdamW on batches of 3",
            "AdamW: the papers' recipe",
        ),
        (Recipe("gd", steps=2), "gradient descent on the exact loss", ""),
    ):
        record, _ = train(RunSettings(Architecture(2, 3), recipe, (0.5,), (0.8,)))
        record = record.assign_attrs(kind="training")
        figure = flowsim.draw(record)
        title = figure.get_suptitle() or figure.axes[0].get_title()
        assert any(remark in text.get_text() for text in figure.findobj(Text))
        assert words in " ".join(title.split()) and "the loss shown: " in title
        assert np.isfinite(record["loss"]).all()
    ended = xr.concat([record] * 4, "model", data_vars="minimal")
    ended["loss"] = (("step", "model"), np.tile(losses, (record.sizes["step"], 1)))
    summary = flowsim.summarize(ended)
    assert (summary["at_bigram"], summary["at_unigram"], summary["models"]) == (1, 1, 4)
