"""Numbers that Python and Rust make alike, bit by bit, so that a golden file needs to hold none of them.

    s <- 6364136223846793005 s + 1442695040888963407   (mod 2^64, from s = seed)
    u  = floor(s / 2^33) / 2^30 - 1                     in [-1, 1), exact in f64

`dp_train::engine::golden` in Rust has the same three functions; both round to f32 once, at the end.
"""

import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "crates/dp-train/tests/golden"


def units(seed, count):
    """`count` numbers in [-1, 1) as f64."""
    state, values = seed, np.empty(count)
    for i in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        values[i] = (state >> 33) / 2**30 - 1
    return values


def parameters(model, seed):
    """Values for all tensors, f32. Weights and biases are uniform up to 1 / sqrt(fan_in); normalisation has
    scales in [0.5, 1.5) and shifts in [-0.5, 0.5)."""
    shapes = [(name, tuple(tensor.shape)) for name, tensor in model.named_parameters()]
    all_units = units(seed, sum(math.prod(shape) for _, shape in shapes))
    values, at, fan_in = [], 0, None
    for name, shape in shapes:
        unit = all_units[at : at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
        if name.endswith("weight"):
            fan_in = math.prod(shape[1:]) if len(shape) > 1 else None
        if fan_in is not None:
            value = 1.0 / math.sqrt(fan_in) * unit
        else:
            value = (1.0 if name.endswith("weight") else 0.0) + 0.5 * unit
        values.append(value.astype(np.float32))
    return values


def image(seed, shape):
    """One image, f32."""
    return units(seed, math.prod(shape)).astype(np.float32).reshape(shape)
