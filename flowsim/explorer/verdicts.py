"""What a training run did, and whether the flow had said so, in plain sentences."""

from __future__ import annotations

from flowsim.explorer.training_stream import LONGEST, Run
from flowsim.explorer.view import View
from flowsim.labels import Label
from full_model.comparison.outcome import open_gap


def verdict(view: View, run: Run) -> str:
    """What the run did and whether the flow had said so, in one or two plain sentences."""
    if not run.curve:
        return "Training was stopped before it began." if run.ended else "Training begins …"
    latest = run.curve[-1]
    if not run.ended:
        return f"Training: {latest.step} steps done, loss {latest.loss:.4f}."
    if run.outcome == Label.UNRESOLVED:
        why = {
            "stopped": "Training was stopped",
            "out of time": f"Training ran out of its {LONGEST:.0f} seconds",
            "out of steps": "Training ended",
        }[run.ended]
        share = float(open_gap(view.model.chain, latest.loss))
        return (
            f"{why} after {latest.step} steps with {100 * share:.0f} % of what can be learned "
            "still unlearned: neither learned nor surely trapped. The flow from here "
            f"{_FLOW[run.predicted]}."
        )
    words = {
        Label.GLOBAL_MINIMUM: "has learned the chain (global minima)",
        Label.LOCAL_MINIMUM: "is trapped (bad local minimum)",
        Label.SADDLE: "rests at a saddle",
    }
    agree = run.outcome == run.predicted
    ending = "just as the flow says" if agree else f"but the flow from here {_FLOW[run.predicted]}"
    when = f"After {latest.step} steps" if latest.step else "At its very start"
    if run.settings.trainer in ("gd", "flow"):  # read off the weights, before they rest
        when += " it is decided:"
    return f"{when} the full transformer {words[run.outcome]}, {ending}."


_FLOW = {
    Label.GLOBAL_MINIMUM: "reaches the global minima",
    Label.LOCAL_MINIMUM: "is trapped",
    Label.SADDLE: "ends in a saddle",
    Label.UNRESOLVED: "is unresolved",
}
