"""The method of Dormand and Prince of order 8(5,3), as sums over the slopes of its stages.

Each function is one row of the tableau without its zeros: what is added to the start of a step of
length 1, or what the error estimates of order 5 and 3 are. Source: Hairer, Nørsett & Wanner,
*Solving Ordinary Differential Equations I*, II.5 (step, error), II.6 (interpolant); the numbers are
scipy's.
"""

from __future__ import annotations

from scipy.integrate import DOP853

from flowsim.compiled import compiled

#: The slopes of stages 5 to 11, all that the end of a step and its errors need beside the first.
Slopes = tuple[float, float, float, float, float, float, float]
#: Order of the step, and evaluations of the field that a step needs.
ORDER, STAGES = 8, 12

_A = tuple(tuple(map(float, row)) for row in (*DOP853.A, *DOP853.A_EXTRA))
_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _13, _14, _15 = _A[1:]
_B, _E5, _E3 = (tuple(map(float, row)) for row in (DOP853.B, DOP853.E5, DOP853.E3))

# fmt: off


@compiled
def stage1(k0: float) -> float:
    return _1[0] * k0


@compiled
def stage2(k0: float, k1: float) -> float:
    return _2[0] * k0 + _2[1] * k1


@compiled
def stage3(k0: float, k2: float) -> float:
    return _3[0] * k0 + _3[2] * k2


@compiled
def stage4(k0: float, k2: float, k3: float) -> float:
    return _4[0] * k0 + _4[2] * k2 + _4[3] * k3


@compiled
def stage5(k0: float, k3: float, k4: float) -> float:
    return _5[0] * k0 + _5[3] * k3 + _5[4] * k4


@compiled
def stage6(k0: float, k3: float, k4: float, k5: float) -> float:
    return _6[0] * k0 + _6[3] * k3 + _6[4] * k4 + _6[5] * k5


@compiled
def stage7(k0: float, k3: float, k4: float, k5: float, k6: float) -> float:
    return _7[0] * k0 + _7[3] * k3 + _7[4] * k4 + _7[5] * k5 + _7[6] * k6


@compiled
def stage8(k0: float, k3: float, k4: float, k5: float, k6: float, k7: float) -> float:
    return _8[0] * k0 + _8[3] * k3 + _8[4] * k4 + _8[5] * k5 + _8[6] * k6 + _8[7] * k7


@compiled
def stage9(k0: float, k3: float, k4: float, k5: float, k6: float, k7: float, k8: float) -> float:
    return _9[0] * k0 + _9[3] * k3 + _9[4] * k4 + _9[5] * k5 + _9[6] * k6 + _9[7] * k7 + _9[8] * k8


@compiled
def stage10(k0: float, k3: float, k4: float, k5: float,
            k6: float, k7: float, k8: float, k9: float) -> float:
    return (_10[0] * k0 + _10[3] * k3 + _10[4] * k4 + _10[5] * k5
            + _10[6] * k6 + _10[7] * k7 + _10[8] * k8 + _10[9] * k9)


@compiled
def stage11(k0: float, k3: float, k4: float, k5: float, k6: float,
            k7: float, k8: float, k9: float, k10: float) -> float:
    return (_11[0] * k0 + _11[3] * k3 + _11[4] * k4 + _11[5] * k5 + _11[6] * k6
            + _11[7] * k7 + _11[8] * k8 + _11[9] * k9 + _11[10] * k10)


@compiled
def stage12(k0: float, k: Slopes) -> float:
    """The end of the step; its slope is the first of the next step."""
    return (_B[0] * k0 + _B[5] * k[0] + _B[6] * k[1] + _B[7] * k[2] + _B[8] * k[3]
            + _B[9] * k[4] + _B[10] * k[5] + _B[11] * k[6])


@compiled
def error5(k0: float, k: Slopes) -> float:
    return (_E5[0] * k0 + _E5[5] * k[0] + _E5[6] * k[1] + _E5[7] * k[2] + _E5[8] * k[3]
            + _E5[9] * k[4] + _E5[10] * k[5] + _E5[11] * k[6])


@compiled
def error3(k0: float, k: Slopes) -> float:
    return (_E3[0] * k0 + _E3[5] * k[0] + _E3[6] * k[1] + _E3[7] * k[2] + _E3[8] * k[3]
            + _E3[9] * k[4] + _E3[10] * k[5] + _E3[11] * k[6])


@compiled
def stage13(k0: float, k: Slopes, k12: float) -> float:
    """The last three stages serve the interpolant alone."""
    return (_13[0] * k0 + _13[6] * k[1] + _13[7] * k[2] + _13[8] * k[3]
            + _13[9] * k[4] + _13[10] * k[5] + _13[11] * k[6] + _13[12] * k12)


@compiled
def stage14(k0: float, k: Slopes, k12: float, k13: float) -> float:
    return (_14[0] * k0 + _14[5] * k[0] + _14[6] * k[1] + _14[7] * k[2]
            + _14[10] * k[5] + _14[11] * k[6] + _14[12] * k12 + _14[13] * k13)


@compiled
def stage15(k0: float, k: Slopes, k12: float, k13: float, k14: float) -> float:
    return (_15[0] * k0 + _15[5] * k[0] + _15[6] * k[1] + _15[7] * k[2]
            + _15[8] * k[3] + _15[12] * k12 + _15[13] * k13 + _15[14] * k14)
