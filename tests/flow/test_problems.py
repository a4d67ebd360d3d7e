"""One table: every built-in model with every option, on every chain, and what holds of each.

The problems are the cases of ``golden``; the solver for any loss and torchdiffeq follow them too.
By default a few starts on the first chain are tried, of one case of each kind; that the solver for
any loss finds the same ends is asked of every case among the slow tests. Goldens are of all chains.
"""

from dataclasses import fields

import pytest
import torch
from golden.cases import CASES

from flowsim import Label, Rule, Status, find_limits, hitting_times, trajectories
from flowsim.flow.any_loss import RosenbrockSolver
from flowsim.flow.solver import solver_of
from flowsim.interface import closed_basin, conserved_values
from flowsim.reference import integrate

#: How far from torchdiffeq's a path may be, relative to 1 + |θ|; the rounded kinks of attention
#: move a path by about their width.
PATHS = {"logit gap": 1e-8, "rank_one_4": 3e-4, "rank_one": 1e-5}


#: Of another length, number of states or bias than a case of the same kind.
ALIKE = {"uniform_64", "rank_one_1024", "states_5", "induction_9", "linear_dynamic",
         "untied_dynamic", "states_3_attention"}  # fmt: skip


def each_problem(first, others=0):
    """Parameters of a test: case, chain, number of starts; ``others`` of each case, slow."""
    few = [pytest.param(case, 0, first, id=case.name) for case in CASES if case.name not in ALIKE]
    many = [
        pytest.param(case, 1 % len(case.chains), others, id=f"{case.name}-many",
                     marks=[pytest.mark.slow] + [pytest.mark.turns] * ("attention_" in case.name))
        for case in CASES if others
    ]  # fmt: skip
    return pytest.mark.parametrize(("case", "chain", "count"), few + many)


def posed(case, chain, count):
    """The model, and the first starts that rounding does not send to one of two mirrored ends."""
    model = case.on(chain)
    starts = torch.from_numpy(case.starts(chain, model)[: 2 * count])
    if case.mirror:
        one, other = (starts[:, model.coordinates.index(name)].abs() for name in case.mirror)
        starts = starts[one != other]
    slow = solver_of(model).batched or case.name.startswith("rank_one_4")
    return model, starts[: min(count, 2 if count < 8 else 8) if slow else count]


#: Limits that several tests look at, by case, chain and number.
LIMITS = {}


def followed(case, chain, count):
    """The model, the starts and their limits."""
    model, starts = posed(case, chain, count)
    key = case.name, chain, len(starts)
    if key not in LIMITS:
        LIMITS[key] = find_limits(model, starts)
    return model, starts, LIMITS[key]


def same(found, expected):
    for field in fields(found):
        pair = getattr(found, field.name), getattr(expected, field.name)
        torch.testing.assert_close(*pair, rtol=0, atol=0, equal_nan=True, msg=field.name)


@each_problem(2, 4)
def test_the_solver_for_any_loss_finds_the_same_ends(case, chain, count):
    model, starts = posed(case, chain, count)
    if solver_of(model).batched:
        pytest.skip("this is the model's solver")
    found = find_limits(model, starts)
    other = find_limits(model, starts, solver=RosenbrockSolver(model))
    both = (found.label != Label.UNRESOLVED) & (other.label != Label.UNRESOLVED)
    assert both.any() or case.model == "induction"  # of it few ends lie where the loss is flat
    assert torch.equal(found.label[both], other.label[both])
    finite = both & (found.rule != Rule.DRIFTS) & (other.rule != Rule.DRIFTS)
    assert not ((found.loss - other.loss)[finite].abs() > 1e-6).any()


@each_problem(2)
def test_paths_are_those_of_torchdiffeq(case, chain, count):
    model, starts = posed(case, chain, count)
    short = case.name.startswith("rank_one_4")  # torchdiffeq takes long through rounded kinks
    times = 2 + torch.tensor([0, 0.1, 0.3, 1 if short else 10], dtype=torch.float64)
    found = trajectories(model, starts, times)
    assert torch.equal(found[0], starts)
    names = (name for name in PATHS if name in (solver_of(model).variable, case.name[: len(name)]))
    allowed = PATHS.get(next(names, ""), 1e-6)
    exact = integrate(model, starts, times, max(allowed / 100, 1e-9), allowed / 1000)
    assert ((found - exact).abs() / (1 + exact.abs())).max() < allowed


@each_problem(6)
def test_ends_fit_their_labels_and_keep_what_is_conserved(case, chain, count):
    model, starts, found = followed(case, chain, count)
    known = found.label != Label.UNRESOLVED
    assert known.double().mean() > 0.7
    assert (found.status[known] == Status.CONVERGED).all()
    assert (found.loss <= model.loss(starts) + 1e-9)[known].all()
    end_losses, basin = model.end_losses(), closed_basin(model, starts)
    if end_losses is not None:
        learned = found.label == Label.GLOBAL_MINIMUM
        assert ((found.loss - end_losses.best)[learned].abs() < 1e-6).all()
    if basin is not None:
        assert torch.equal((found.label == Label.GLOBAL_MINIMUM)[known], basin[known])
    still = known & found.theta.isfinite().all(1) & (found.rule != Rule.DRIFTS)
    before, after = (conserved_values(model, x)[still] for x in (starts, found.theta))
    size = 1 + before.abs() + found.theta[still].square().amax(1, keepdim=True)
    # where kinks are rounded, the embedding's balance drifts by about their width
    allowed = 1e-4 if case.name.startswith("rank_one_4") else 1e-7
    assert not ((after - before).abs() / size > allowed).any()


@each_problem(6)
def test_a_start_does_not_see_the_others(case, chain, count):
    """In another order, alone, and beside one that is not finite."""
    model, starts, whole = followed(case, chain, count)
    lost = torch.full_like(starts[:1], torch.nan)
    among = find_limits(model, torch.cat([lost, starts.flip(0)]))
    assert among.status[0] == Status.FAILED and among.label[0] == Label.UNRESOLVED
    same(among.at(torch.arange(len(starts), 0, -1)), whole)
    if not solver_of(model).batched:  # of which test_any_loss.py asks it
        same(find_limits(model, starts[1:2]), whole.at(torch.tensor([1])))
    times = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)
    path = trajectories(model, torch.cat([starts[:2], lost]), times)
    assert torch.equal(path[:, :1], trajectories(model, starts[:1], times))
    assert path[1:, 2].isnan().all()


@each_problem(6)
def test_the_wanted_part_of_the_loss_is_left_at_the_time(case, chain, count):
    """Starts that do not learn have no time; a batch, its parts and known limits give the same."""
    model, starts, limits = followed(case, chain, count)
    times = hitting_times(model, starts, 0.03, limits=limits)
    moves = limits.rule != Rule.CRITICAL_START
    if model.end_losses() is not None:
        learned = limits.label == Label.GLOBAL_MINIMUM
        assert not times[~learned].isfinite().any() and times[learned & moves].isfinite().all()
    first = limits.at(torch.tensor([0]))
    alone = hitting_times(model, starts[:1], 0.03, limits=first)
    torch.testing.assert_close(alone, times[:1], rtol=0, atol=0, equal_nan=True)
    for i in times.isfinite().nonzero()[:, 0].tolist():
        late = trajectories(model, starts[i], torch.stack([torch.zeros(()).double(), times[i]]))[1]
        left = (model.loss(late) - limits.loss[i]) / (model.loss(starts[i]) - limits.loss[i])
        # where kinks are rounded, the loss that is followed is another by their width
        assert left.item() == pytest.approx(0.03, rel=1e-2 if "rank_one_4" in case.name else 1e-4)


@each_problem(6)
def test_few_steps_are_a_status_and_progress_counts_every_start(case, chain, count):
    model, starts = posed(case, chain, count)
    seen = []
    found = find_limits(model, starts, max_steps=3, progress=seen.append)
    assert sum(seen) == len(starts) and min(seen) > 0
    open_ = found.label == Label.UNRESOLVED
    assert open_.any() and (found.status[open_] == Status.TIMED_OUT).all()
    assert (found.rule[open_] == Rule.NONE).all()
    of_arrays = find_limits(model, starts.numpy(), max_steps=3)
    assert (of_arrays.theta == found.theta.numpy()).all()
