"""The rank-one flow without attention, followed by scipy's LSODA from event to event at 1e-12.

Written from the equations and slow; shares nothing with the package. Inside a mode every unit is
open, closed or sliding. A sliding unit has the slope that keeps Y_x = 0:

    Y_1 = 0:  s_1 = −(A + (u/N) ω_0 s_0)/(u ω_1 (1 + 1/N)),  A = Σ_x ω_x out_x if tied, else 0,
    Y_0 = 0:  s_0 = −ω_1 s_1/ω_0,

and slides as long as it lies between 1 and 1 + 4w₁w₂.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import expit


class UndecidedError(Exception):
    """This code does not know how the orbit goes on."""


@dataclass
class Oracle:
    """p, q, N and whether tied; y = (e, ρ, w₁, w₂, b[, c])."""

    p: float
    q: float
    length: float
    tied: bool = True
    sign: float = 1.0  # of w₁ in this mode

    def parts(self, y, modes):
        """(Y, s, out, ω, u); modes are "open", "closed" and "slide", and "held" for w₁ = 0."""
        share = np.array([self.q, self.p]) / (self.p + self.q)
        u = y[0] if self.tied else y[5]
        inner = np.array([y[1], y[0] + y[1]])
        slope = np.array([1 + 4 * y[2] * y[3] if mode == "open" else 1.0 for mode in modes[:2]])
        out = inner * slope
        for x in (0, 1):
            if modes[x] == "slide":
                out[x] = 0.0
        omega = share * (expit(u * out + y[4]) - np.array([self.p, 1 - self.q]))
        with np.errstate(divide="ignore", invalid="ignore"):  # at rest any slope will do
            if modes[1] == "slide":
                pull = self.tied * (omega @ out) + u / self.length * omega[0] * slope[0]
                slope[1] = -pull / (u * omega[1] * (1 + 1 / self.length))
            if modes[0] == "slide":
                slope[0] = -omega[1] * slope[1] / omega[0]
        return inner, slope, out, omega, u

    def field(self, y, modes):
        inner, slope, out, omega, u = self.parts(y, modes)
        e = -u * omega[1] * slope[1] - self.tied * (omega @ out)
        rho = -u / self.length * (omega @ slope)
        relu = sum(omega[x] * inner[x] for x in (0, 1) if modes[x] == "open")
        w1, w2 = (0.0, 0.0) if modes[2] == "held" else (-u * y[3] * relu, -u * y[2] * relu)
        return np.array([e, rho, w1, w2, -omega.sum(), *([] if self.tied else [-(omega @ out)])])

    def loss(self, y):
        u = y[0] if self.tied else y[5]
        inner = np.array([y[1], y[0] + y[1]])
        f = u * (inner + 4 * y[3] * np.maximum(y[2] * inner, 0)) + y[4]
        t = np.array([self.p, 1 - self.q])
        share = np.array([self.q, self.p]) / (self.p + self.q)
        return float(share @ (np.logaddexp(0, f) - t * f))

    @property
    def entropies(self):
        """The entropy rate and h(π₁)."""

        def h(x):
            return -x * math.log(x) - (1 - x) * math.log(1 - x)

        pi1 = self.p / (self.p + self.q)
        return (1 - pi1) * h(self.p) + pi1 * h(self.q), h(pi1)

    def modes(self, y, on):
        """Modes from y, which lies on the surfaces in ``on`` (of 0, 1 and "w")."""
        sign = math.copysign(1.0, y[2])
        if "w" in on:
            sides = [self.weight_velocity(y, side) for side in (1.0, -1.0)]
            if sides[0] < 0 < sides[1]:
                return ["closed", "closed", "held"]
            if sides[0] * sides[1] <= 0:
                raise UndecidedError("w1 = 0 repels")
            sign = math.copysign(1.0, sides[0])
        self.sign = sign
        inner = [y[1], y[0] + y[1]]
        found = ["open" if sign * value > 0 else "closed" for value in inner]
        units = [x for x in (0, 1) if x in on]
        if len(units) == 2:
            raise UndecidedError("both surfaces at once")
        for x in units:
            speeds = []
            for mode in ("open", "closed"):
                trial = list(found)
                trial[x] = mode
                rate = self.field(y, [*trial, "free"])
                speeds.append(sign * (rate[1] if x == 0 else rate[0] + rate[1]))
            if speeds[0] < 0 < speeds[1]:
                found[x] = "slide"
            elif speeds[0] * speeds[1] <= 0:
                raise UndecidedError("the surface repels")
            else:
                found[x] = "open" if speeds[0] > 0 else "closed"
        return [*found, "free"]

    def weight_velocity(self, y, side):
        """w₁′ at w₁ = 0 if w₁ had this sign."""
        inner, _, _, omega, u = self.parts(y, ["closed", "closed", "held"])
        return -u * y[3] * sum(omega[x] * inner[x] for x in (0, 1) if side * inner[x] > 0)

    def events(self, y, modes, kinked, wanted):
        """Functions that fall through zero where the mode or the orbit ends, and their surfaces."""
        found = [(lambda t, y: self.loss(y) - wanted, "loss")]
        if modes[2] == "held":
            found.append((lambda t, y: -self.weight_velocity(y, 1.0), "w"))
            found.append((lambda t, y: self.weight_velocity(y, -1.0), "w"))
            return found
        sign = self.sign
        for x in (0, 1):
            if modes[x] == "slide":

                def part(y, x=x):  # 0 closed, 1 open
                    return (self.parts(y, modes)[1][x] - 1) / (4 * y[2] * y[3])

                found.append((lambda t, y, part=part: part(y), x))
                found.append((lambda t, y, part=part: 1 - part(y), x))
            else:
                side = sign if modes[x] == "open" else -sign
                found.append((lambda t, y, x=x, side=side: side * (y[1] + x * y[0]), x))
        if kinked:
            found.append((lambda t, y: sign * y[2], "w"))
        return found

    def rest(self, y, modes):
        """The limit of the linearised flow near the minima: the shortest way, in the metric, to
        where both logits are right and the surfaces are kept.
        """
        inverse = 1 / np.array([1, self.length, 4, 4, 1, 1])[: len(y)]

        def missing(y):
            _, _, out, _, u = self.parts(y, modes)
            targets = np.array([self.p, 1 - self.q])
            found = [*(u * out + y[4] - np.log(targets / (1 - targets)))]
            found += [y[1]] * (modes[0] == "slide") + [y[0] + y[1]] * (modes[1] == "slide")
            return np.array(found + [y[2]] * (modes[2] == "held"))

        for _ in range(3):
            steps = 1e-6 * np.eye(len(y))
            slopes = np.stack([(missing(y + h) - missing(y - h)) / 2e-6 for h in steps], axis=1)
            weights = np.linalg.lstsq(slopes * inverse @ slopes.T, missing(y))[0]
            y = y - inverse * (slopes.T @ weights)
        return y

    def follow(self, y, wanted, rest=False, horizon=1e10, trap=1e-8, rtol=1e-12):
        """(why, time, y): "loss" where the loss has fallen to ``wanted``, "trap" where |e| has
        fallen to ``trap`` for good, else "time". With ``rest``, y is where the flow goes from a
        loss close to the entropy rate.
        """
        y, time = np.array(y, dtype=float), 0.0
        kinked = y[2] ** 2 < y[3] ** 2
        modes = self.modes(y, {x for x in (0, 1) if (y[1], y[0] + y[1])[x] == 0})
        for _ in range(50):
            functions = self.events(y, modes, kinked, wanted)
            for function, _ in functions:
                function.terminal, function.direction = True, -1
            trapped = [lambda t, y: abs(y[0]) - trap] if self.tied else []
            for function in trapped:
                function.terminal, function.direction = True, -1
            try:
                run = solve_ivp(
                    lambda t, y, modes=modes: self.field(y, modes),
                    (time, horizon),
                    y,
                    method="LSODA",
                    rtol=rtol,
                    atol=1e-14,
                    events=[f for f, _ in functions] + trapped,
                )
            except ValueError as error:  # rounding at an event
                raise UndecidedError(str(error)) from error
            y, time = run.y[:, -1], run.t[-1]
            if run.status != 1:
                return "time", time, y
            hits = [i for i, times in enumerate(run.t_events) if len(times)]
            if len(functions) in hits:
                return "trap", time, y
            kinds = {functions[i][1] for i in hits}
            if "loss" in kinds:
                return "loss", time, self.rest(y, modes) if rest else y
            on = kinds | {x for x in (0, 1) if modes[x] == "slide"}
            y[1] = 0.0 if 0 in on else -y[0] if 1 in on else y[1]
            y[2] = 0.0 if "w" in on else y[2]
            modes = self.modes(y, on)
        raise UndecidedError("too many events")
