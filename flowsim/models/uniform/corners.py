"""Corners of smooth rows: values of a at which ReLUs of many pasts switch at once.

Uniform attention adds s = x − ½ + a m with m = k/n − ½, k of the n symbols so far being ones, the
current one x among them. So ReLU(s) has its kink for pasts of n symbols at

    a = n/j,   j = −n, −n + 2, …, n − 2 without 0,

whatever the other coordinates; at n = 1 it is a = −1, which linear attention has too. There ∂L/∂a
jumps, and nothing else does, since s = 0. Between two corners the field is smooth, and it goes on
smoothly past both if the ReLUs stay open or shut. Source: docs/derivations/06.md.
"""

from __future__ import annotations

from math import inf

from flowsim.compiled import compiled

#: Corners of pasts of up to this many symbols are met one by one; those of longer pasts weigh
#: less, and steps across them are as short as the error demands.
MOST = 8
#: The last places in a row's memory: the largest n whose corners count (0: none), the corners
#: beside the row, and whether it slides along a = LOW or HIGH.
ORDER, LOW, HIGH, SLIDES, ROOM = -4, -3, -2, -1, 4
#: Relative distance from a corner within which a is on it.
WIDTH = 1e-12


@compiled(no_cpython_wrapper=True)
def enclose(a, side, memory):
    """Write the corners beside a; a corner itself lies below (``side`` > 0) or above (< 0)."""
    low, high = -inf, inf
    for n in range(1, int(memory[ORDER]) + 1):
        for j in range(-n, n - 1, 2):
            corner = n / j if j != 0 else inf
            if corner < a or (corner == a and side > 0):
                low = max(low, corner)
            else:
                high = min(high, corner)
    memory[LOW], memory[HIGH] = low, high


@compiled(no_cpython_wrapper=True)
def nearest(a, memory):
    """The corner that a is on or beyond, to rounding; infinite without one."""
    low, high = memory[LOW], memory[HIGH]
    if low > -inf and a <= low + WIDTH * abs(low):
        return low
    if high < inf and a >= high - WIDTH * abs(high):
        return high
    return inf


@compiled(no_cpython_wrapper=True)
def inside(a, memory):
    """The a by which ReLUs are open: that between the corners which is next to a."""
    if memory[ORDER] == 0.0:
        return a
    low, high = memory[LOW], memory[HIGH]
    if low > -inf:
        a = max(a, low + WIDTH * abs(low))
    if high < inf:
        a = min(a, high - WIDTH * abs(high))
    return a
