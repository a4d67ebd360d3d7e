"""Why faults of ``tests/mutants.py`` cannot be noticed, or are not, by module and fault."""

_TWICE = "the line before has returned where they are equal"
_AT_SADDLE = "at w = −1/√2 every e ≠ 0 has more energy than the saddle"
_FINER = "a finer rule than is needed is as exact"
_CODE = "any other number would do as well"
_DIRECTION = "only the vector's direction counts"
_ROUNDED = "two rounded numbers are not equal there"
_ROOM = "room for numbers that are not read"
_ROOT = "whether by bisection or by false position, the root is the same"
_PARTS = "rows do not see each other"
_OWN = "every model has a function of its own there"
_SIGNS = "both signs are tried"
_FLAG = "any number but 0 asks for the derivative"
_CHOICE = "where a picture's orbits start is a choice"
_PLANE = "where a plane lies is a choice"
_BOUND = "the bound is met by none that is decided"
_UNLIKE = "a program that gives other numbers than torch is not used"
#: Faults that change nothing that is computed.
REASONS = {
    ("full_model.comparison.outcome",
     "`(lowest > 0) & (effective > 0)` becomes `(lowest > 0) | (effective > 0)`"):
    "with π₀π₁ > 0 both hold or neither",
    ("flowsim.flow.rows.loop", "`1` becomes `2`"): _ROOT,
    ("flowsim.flow.rows.loop", "`-1` becomes `-2`"): _ROOT,
    ("flowsim.models.uniform.rows",
     "`a <= low + WIDTH * abs(low)` becomes `a < low + WIDTH * abs(low)`"): _ROUNDED,
    ("full_model.comparison.outcome", "`lowest > 0` becomes `lowest >= 0`"):
    "rounded eigenvalues are not 0",
    ("full_model.lift.projection",
     "`1 / math.sqrt(e.shape[-1])` becomes `1 * math.sqrt(e.shape[-1])`"): _DIRECTION,
    ("flowsim.models.gap_family.base", "`raise NotImplementedError` becomes `pass`"):
    "every model has a method of its own",
    ("flowsim.models.bias", "`value < 0` becomes `value <= 0`"):
    "at the root itself no bracket is used",
    ("flowsim.models.gap_family.base", "`0` becomes `1`"):
    "between a logit of 0 and one of 1 both forms are right to rounding",
    ("flowsim.models.rank_one.point",
     "`self.v.abs() <= NEGLIGIBLE * self.o.abs()` becomes "
     "`self.v.abs() < NEGLIGIBLE * self.o.abs()`"): "they are equal only where both are 0",
    ("flowsim.models.uniform.quadrature", "`6` becomes `12`"): _FINER,
    ("flowsim.models.uniform.quadrature", "`1` becomes `2`"): _FINER,
    ("flowsim.models.uniform.quadrature", "`0.6` becomes `1.6`"): _FINER,
    ("flowsim.models.uniform.quadrature", "`0` becomes `1`"):
    "a law of several places has a largest distance that is neither 0 nor 1",
    ("flowsim.models.uniform.table", "`1` becomes `2`"): "the room is not read",
    ("flowsim.flow.gap.engine", "`65536` becomes `131072`"): _PARTS,
    ("flowsim.models.untied.compiled", "`u * u` becomes `u / u`"): "either chart follows the row",
    ("flowsim.models.canonical.gaussian_integral", "`45.0` becomes `90.0`"):
    "what is beyond is rounding",
    ("flowsim.models.induction.model",
     "`loss - end.loss <= _NEAR * (landscape.plateau - end.loss)` becomes "
     "`loss - end.loss < _NEAR * (landscape.plateau - end.loss)`"): _ROUNDED,
    ("flowsim.models.memory.model", "`0.6` becomes `1.6`"): _PLANE,
    ("flowsim.flow.reference", "`200` becomes `400`"): _BOUND,
    ("flowsim.flow.replay",
     "`a.shape == b.shape and a.dtype == b.dtype` becomes "
     "`a.shape == b.shape or a.dtype == b.dtype`"): _UNLIKE,
    ("flowsim.flow.solver", "`False` becomes `True`"): "a protocol is not run",
    ("flowsim.landscape.stability", "`first > 0` becomes `first < 0`"): _ROOT,
    ("flowsim.landscape.stability", "`velocity.flip(-1) > 0` becomes `velocity.flip(-1) >= 0`"):
    _ROUNDED,
    ("full_model.comparison.outcome",
     "`nearest.relative_distance[rows] <= ON_PLANE` becomes "
     "`nearest.relative_distance[rows] < ON_PLANE`"): _ROUNDED,
    ("flowsim.flow.return_codes", "`100` becomes `200`"): _CODE,
    ("flowsim.flow.return_codes", "`101` becomes `202`"): _CODE,
    ("flowsim.flow.return_codes", "`102` becomes `204`"): _CODE,
    ("flowsim.models.induction.rows", "`0` becomes `1`"): "both are finite or neither",
    ("flowsim.models.rank_one.plane", "`0.55` becomes `1.55`"): _CHOICE,
    ("flowsim.models.rank_one.plane", "`3.5` becomes `7.0`"): _CHOICE,
    ("flowsim.models.uniform.values", "`1.0` becomes `2.0`"): _FLAG,
    ("flowsim.models.uniform.values", "`1` becomes `2`"): "any negative number says so",
    ("flowsim.flow.gap.hooks", "`raise NotImplementedError` becomes `pass`"): _OWN,
    ("flowsim.flow.rows.hooks", "`1` becomes `2`"): _OWN,
    ("flowsim.flow.rows.hooks", "`1.0` becomes `2.0`"): "any number from 1 on says so",
    ("flowsim.flow.rows.engine", "`5` becomes `10`"): _ROOM,
    ("flowsim.flow.rows.engine", "`start.shape[1] ** 2` becomes `start.shape[1] * 2`"): _PARTS,
    ("flowsim.models.rank_one.attention.termination", "`32` becomes `64`"): _PARTS,
    ("flowsim.models.gap_family.compiled", "`1.0` becomes `2.0`"):
    "either is what rounding leaves of a factor that is 0",
    ("flowsim.flow.return_codes", "`104` becomes `208`"): _CODE,
    ("flowsim.models.rank_one.rows", "`6` becomes `12`"): _ROOM,
    ("flowsim.flow.rows.workspace", "`6` becomes `12`"): _ROOM,
    ("flowsim.models.memory.recursion",
     "`abs(found - before) < _ERROR` becomes `abs(found - before) <= _ERROR`"): _ROUNDED,
    ("flowsim.models.states.attention", "`4000000` becomes `8000000`"): _PARTS,
    ("flowsim.models.uniform.quadrature", "`24` becomes `48`"): _FINER,
    ("flowsim.models.rank_one.training.reduced", "`8` becomes `16`"): "d is known by then",
    ("flowsim.flow.replay", "`raise _Unlike` becomes `pass`"):
    _UNLIKE,
    ("flowsim.flow.growth", "`power > _LEAST` becomes `power >= _LEAST`"): _ROUNDED,
    ("flowsim.landscape.stability", "`1 + unit * sign` becomes `1 - unit * sign`"): _SIGNS,
    ("flowsim.flow.chart",
     "`1.0 + 0.25 * torch.arange(1, k + 1, dtype=theta.dtype, device=theta.device).sin(` becomes "
     "`1.0 - 0.25 * torch.arange(1, k + 1, dtype=theta.dtype, device=theta.device).sin(`"):
    "any point beside the row does as well",
    ("flowsim.flow.rows.workspace", "`2` becomes `4`"): _ROOM,
    ("flowsim.models.rank_one.termination",
     "`value < 1e-06 * reals[INFORMATION]` becomes "
     "`value <= 1e-06 * reals[INFORMATION]`"): _ROUNDED,
    ("flowsim.flow.rows.engine",
     "`nearest < _DOUBTFUL_LOGARITHMS * end_losses.speed` becomes "
     "`nearest <= _DOUBTFUL_LOGARITHMS * end_losses.speed`"): _ROUNDED,
    ("flowsim.flow.rows.engine",
     "`found.passed < _DOUBTFUL * scale` becomes `found.passed <= _DOUBTFUL * scale`"): _ROUNDED,
    ("flowsim.flow.rows.vectors", "`1` becomes `2`"): "another pivot does as well",
    ("flowsim.models.uniform.rows",
     "`stiffness > 1e-290` becomes `stiffness >= 1e-290`"): _ROUNDED,
    ("flowsim.models.canonical.basins",
     "`chain.second_eigenvalue < 0` becomes `chain.second_eigenvalue <= 0`"): _TWICE,
    ("flowsim.models.canonical.basins",
     "`chain.second_eigenvalue > 0` becomes `chain.second_eigenvalue >= 0`"): _TWICE,
    ("flowsim.models.linear.model",
     "`(1 + a) * feed_forward_gain(w) * self.chain.second_eigenvalue > 0` becomes "
     "`(1 + a) * feed_forward_gain(w) * self.chain.second_eigenvalue >= 0`"): _ROUNDED,
    ("flowsim.models.canonical.basins",
     "`energy(theta) > SADDLE_ENERGY` becomes `energy(theta) >= SADDLE_ENERGY`"):
    "a rounded start lies beside the separatrix, not on it",
    ("flowsim.models.canonical.basins", "`w > SADDLE_W` becomes `w >= SADDLE_W`"): _AT_SADDLE,
    ("flowsim.models.canonical.basins", "`w <= SADDLE_W` becomes `w < SADDLE_W`"): _AT_SADDLE,
    ("flowsim.models.canonical.basins", "`w < SADDLE_W` becomes `w <= SADDLE_W`"): _AT_SADDLE,
    ("flowsim.flow.orbits", "`0` becomes `1`"): "only the shape counts",
    ("flowsim.flow.gap.loops", "`plane < other` becomes `plane <= other`"): _ROUNDED,
    ("flowsim.models.uniform.sums",
     "`corner // 2 - 0.5 + a * (corner % 2 - 0.5)` becomes "
     "`corner // 2 - 0.5 - a * (corner % 2 - 0.5)`"): _SIGNS,
    ("flowsim.models.gap_family.compiled", "`w < 0` becomes `w <= 0`"): "w = 0 has no sign",
    ("flowsim.models.uniform.table", "`32` becomes `64`"): _ROOM,
    ("flowsim.flow.gap.timed", "`ratio <= 1.0` becomes `ratio < 1.0`"): _ROUNDED,
    ("flowsim.flow.return_codes", "`103` becomes `206`"): _CODE,
    ("flowsim.flow.return_codes", "`1000` becomes `2000`"): _CODE,
    ("flowsim.flow.return_codes", "`2` becomes `4`"): _CODE,
    ("flowsim.flow.rows.loop",
     "`event_function(row, new) < 0.0` becomes `event_function(row, new) <= 0.0`"): _ROUNDED,
    ("flowsim.models.rank_one.termination",
     "`abs(y[0] * inner * (gain if mode[x] == OPEN else 1.0) + way) > _LEVEL` becomes "
     "`abs(y[0] * inner * (gain if mode[x] == OPEN else 1.0) + way) >= _LEVEL`"): _ROUNDED,
    ("flowsim.flow.rows.hooks", "`-1` becomes `-2`"): "every model has these of its own",
    ("flowsim.flow.rows.loop", "`4` becomes `8`"): _ROOT,
    ("flowsim.flow.rows.loop",
     "`trial % 5 == 4` becomes `trial % 5 != 4`"): _ROOT,
    ("flowsim.flow.gap.loops", "`third + move` becomes `third - move`"): _SIGNS,
    ("flowsim.flow.any_loss", "`high - low` becomes `high + low`"): _ROOT,
    ("flowsim.flow.reference",
     "`-_SHARPNESS * beyond / speed` becomes `-_SHARPNESS * beyond * speed`"):
    "a positive factor on the field changes no orbit",
    ("flowsim.flow.reference",
     "`model.logit_gap(point) - target` becomes `model.logit_gap(point) + target`"):
    "a positive factor on the field changes no orbit",
}  # fmt: skip
_BOUND = "a bound that no orbit of the tests reaches"
#: Faults that no test notices though they change something.
OTHERS = {
    (
        "flowsim.models.canonical.gaussian_integral",
        "`0` becomes `1`",
    ): "with fewer pieces the integral is as exact at every σ that is tried",
    (
        "flowsim.flow.any_loss",
        "`self.h * steep` becomes `self.h / steep`",
    ): "a test notices it that begins after the seconds of one fault",
    (
        "flowsim.flow.gap.loops",
        "`allowed.most + 1` becomes `allowed.most - 1`",
    ): "tests/flow/test_limits.py notices it, compiled",
    ("flowsim.models.rank_one.attention.termination", "`30000` becomes `60000`"): _BOUND,
    ("flowsim.flow.reference", "`10000000.0` becomes `20000000.0`"): _BOUND,
    ("flowsim.flow.reference", "`200` becomes `400`"): _BOUND,
    (
        "flowsim.flow.reference",
        "`0.0` becomes `1.0`",
    ): "ends move by less than they are known to",
}
