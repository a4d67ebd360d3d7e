"""The canonical model a second time, in 40-digit arithmetic and by other means.

Nothing here shares a formula with the package: the bias is found by root search on the derivative,
end points by solving the conservation law together with the end condition, times by quadrature.
Tests run with 40 digits: see ``forty_digits`` in conftest.
"""

from mpmath import findroot, mp, mpf, quad


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def softplus(x):
    return mp.log1p(mp.exp(x))


class Canonical:
    """Loss, gradient and end points of the canonical model at (p, q), given as strings."""

    def __init__(self, p: str, q: str) -> None:
        self.p, self.q = mpf(p), mpf(q)
        self.pi1 = self.p / (self.p + self.q)
        self.pi0 = 1 - self.pi1
        self.target = mp.log((1 - self.p) * (1 - self.q) / (self.p * self.q))

    def loss_of_gap(self, gap):
        def derivative(f0):
            return self.pi0 * (sigmoid(f0) - self.p) + self.pi1 * (sigmoid(f0 + gap) - (1 - self.q))

        low, high = sorted((mp.log(self.p / (1 - self.p)), mp.log((1 - self.q) / self.q) - gap))
        low, high = low - 1, high + 1
        digits = 50 + int(abs(gap) / 2)  # in the tails the derivative is small
        with mp.workdps(digits):
            while high - low > mpf(10) ** -42:
                middle = (low + high) / 2
                low, high = (middle, high) if derivative(middle) < 0 else (low, middle)
            f0 = (low + high) / 2
        f1 = f0 + gap
        value = self.pi0 * (softplus(f0) - self.p * f0)
        value += self.pi1 * (softplus(f1) - (1 - self.q) * f1)
        return value, f0, self.pi1 * (sigmoid(f1) - (1 - self.q))

    def point(self, e, w):
        """(bias, loss, ∂L/∂e, ∂L/∂w) at (e, w)."""
        e, w = mpf(e), mpf(w)
        gap = e**2 * (1 + 2 * w * abs(w))
        value, f0, slope = self.loss_of_gap(gap)
        gradient = slope * 2 * e * (1 + 2 * w * abs(w)), slope * 4 * abs(w) * e**2
        return f0 + e**2 / 2, value, *gradient

    @staticmethod
    def energy(e, w):
        return e**2 - w**2 - mp.sign(w) * mp.log(abs(w))

    def global_end(self, e, w, guess):
        """(e, w) on the minima curve with the energy of the start, found from a guess of w."""
        start = self.energy(mpf(e), mpf(w))

        def mismatch(x):
            return self.target / (1 + 2 * x * abs(x)) - x**2 - mp.sign(x) * mp.log(abs(x)) - start

        end = findroot(mismatch, mpf(guess))
        return mp.sign(mpf(e)) * mp.sqrt(self.target / (1 + 2 * end * abs(end))), end

    def time_to(self, e, w, w_end):
        """Physical time along the orbit from (e, w) to w_end: ∫ dw / (−A 4|w| e²)."""
        start = self.energy(mpf(e), mpf(w))

        def integrand(x):
            squared = start + x**2 + mp.sign(x) * mp.log(abs(x))
            slope = self.loss_of_gap(squared * (1 + 2 * x * abs(x)))[2]
            return -1 / (slope * 4 * abs(x) * squared)

        return quad(integrand, mp.linspace(mpf(w), mpf(w_end), 9))
