"""Colours as eyes without one kind of cone see them, and how far apart two are."""

import numpy as np

#: Linear RGB to what is seen without M or L cones (Machado, Oliveira, Fernandes 2009, severity 1).
WITHOUT = {
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
}  # fmt: skip
#: Linear RGB to XYZ of the white D65, and that white.
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = _XYZ.sum(axis=1)


def linear(colours):
    """Colours (n, 3) of sRGB, 0 to 1, as amounts of light."""
    c = np.asarray(colours, float)
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(light):
    """Amounts of light (n, 3) as CIE L*a*b*, in which equal distances look about equally far."""
    ratio = np.clip(np.asarray(light) @ _XYZ.T / _WHITE, 0, None)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], -1)


def seen(colours, kind=None):
    """Colours (n, 3) of sRGB in L*a*b*, by all cones or without one kind."""
    light = linear(colours)
    return lab(light if kind is None else np.clip(light @ np.array(WITHOUT[kind]).T, 0, 1))


def distances(places):
    """Distances (n, n) between places (n, 3)."""
    return np.linalg.norm(places[:, None] - places[None], axis=-1)
