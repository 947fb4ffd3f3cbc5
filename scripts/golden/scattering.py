#!/usr/bin/env python3
"""Scattering coefficients by kymatio, for planes of several sizes.

    python3 -m venv "$ENV" && "$ENV"/bin/pip install kymatio==0.3.0 scipy==1.14.1
    "$ENV"/bin/python scripts/golden/scattering.py > crates/cifar-convnet/tests/golden/scattering.json

Seconds; later versions of scipy lack what kymatio imports. Pictures and the weights of the projections follow
scripts/golden/formula.py, so the file holds results only: per coefficient the mean over all places, a projection over
the number of places, and the values at the first place and at the one in the middle. kymatio's filters are in f32,
the rest here is in f64.
"""

import json
import platform
from importlib.metadata import version

import numpy as np
from formula import units
from kymatio.numpy import Scattering2D


def noise(height, width):
    return units(7, height * width).astype(np.float32).astype(np.float64).reshape(height, width)


def ramp(height, width):
    y, x = np.mgrid[:height, :width]
    return (3 * x + 7 * y) % 32 / 16 - 1


PICTURES = {"noise": noise, "ramp": ramp}
CASES = [
    ("noise", 32, 32, 2, 8),
    ("ramp", 32, 32, 2, 8),
    ("noise", 28, 28, 2, 8),
    ("noise", 32, 24, 1, 8),
    ("ramp", 48, 32, 3, 4),
]

cases = []
for picture, height, width, scales, angles in CASES:
    transform = Scattering2D(J=scales, shape=(height, width), L=angles)
    coefficients = transform(PICTURES[picture](height, width))
    channels = coefficients.reshape(coefficients.shape[0], -1)
    places = channels.shape[1]
    weights = units(11, places).astype(np.float32).astype(np.float64)
    rows = [[c.mean(), c @ weights / places, c[0], c[places // 2]] for c in channels]
    case = {"picture": picture, "height": height, "width": width, "scales": scales, "angles": angles}
    cases.append(case | {"channels": [[float(f"{x:.7g}") for x in row] for row in rows]})

versions = {name: version(name) for name in ["kymatio", "numpy", "scipy"]}
head = {"made_by": "scripts/golden/scattering.py", "versions": versions, "python": platform.python_version()}
lines = []
for case in cases:
    rows = ",\n  ".join(json.dumps(row) for row in case.pop("channels"))
    lines.append(json.dumps(case)[:-1] + f', "channels": [\n  {rows}]}}')
print(json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(lines) + "]}")
