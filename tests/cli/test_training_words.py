"""What is said of a training run."""

import numpy as np

import flowsim
from flowsim.cli.texts import text_of
from full_model import Architecture, Recipe, RunSettings, train


def test_a_training_run_says_what_it_was_trained_on_and_where_it_ended():
    chain = flowsim.BinaryChain(0.5, 0.8)
    low, high = chain.entropy_rate, chain.stationary_entropy
    summary = {
        "p": 0.5, "q": 0.8, "trainer": "gd", "models": 4, "not_finite": 0, "captions": {},
        "entropy_rate": low, "stationary_entropy": high, "seconds": 1.0,
        "loss": [low + 0.01 * (high - low), high, (low + high) / 2, None],
    }  # fmt: skip
    assert "1 and 1 of 4, within 10% of the gap" in text_of("training", summary)
    for recipe, words in (
        (
            Recipe.named("adamw-papers", steps=2, batch=3),
            "AdamW (the papers' recipe) on batches of 3",
        ),
        (Recipe("gd", steps=2), "gradient descent on the exact loss"),
    ):
        record, _ = train(RunSettings(Architecture(2, 3), recipe, (0.5,), (0.8,)))
        record = record.assign_attrs(kind="training")
        title = flowsim.draw(record).get_suptitle() or flowsim.draw(record).axes[0].get_title()
        assert words in " ".join(title.split()) and "the loss shown: " in title
        assert np.isfinite(record["loss"]).all()
