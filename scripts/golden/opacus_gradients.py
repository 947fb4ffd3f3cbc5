#!/usr/bin/env python3
"""Per-example gradients by Opacus' grad_sample, for small networks of every layer and the paper's ConvNet.

    python3 -m venv "$ENV" && "$ENV"/bin/pip install torch opacus==1.6.0 numpy
    "$ENV"/bin/python scripts/golden/opacus_gradients.py

Writes crates/dp-train/tests/golden/opacus.json in half a minute. Weights, images and the vectors of the
projections follow scripts/golden/formula.py, so the file holds results only: per example and tensor the norm, two
projections <g, v> and four entries; and the projections of the clipped sum.

All is computed in f64, so that the only rounding is that of the engine under test. Seeds of images are taken in
order; those that come too close to a kink of ReLU or max pooling are left out (scripts/golden/kinks.py).
"""

import json
import platform

import formula
import numpy as np
import opacus
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from convnet import CIFAR, PRESETS, linear, sequential
from kinks import MARGIN, margin

PROJECTIONS = 2
ENTRIES = 4


def conv(inner, outer, kernel=3, stride=1, padding=1, groups=1):
    layer = {"layer": "conv2d", "in_channels": inner, "out_channels": outer, "kernel": kernel}
    return layer | {"stride": stride, "padding": padding, "groups": groups}


RELU, TANH, FLATTEN = {"layer": "relu"}, {"layer": "tanh"}, {"layer": "flatten"}


def pool(kind, kernel, stride):
    return {"layer": f"{kind}_pool2d", "kernel": kernel, "stride": stride}


def norm(groups):
    return {"layer": "group_norm", "groups": groups}


CASES = {
    "linear": ((1, 5, 4), [FLATTEN, linear(20, 9), TANH, linear(9, 4)]),
    "convolutions": (
        (3, 9, 8),
        [conv(3, 6), RELU, conv(6, 5, 5, 2, 2), TANH, conv(5, 4, 1, 1, 0), FLATTEN, linear(80, 5)],
    ),
    "winograd": ((3, 10, 9), [conv(3, 17), TANH, conv(17, 33), RELU, conv(33, 16), FLATTEN, linear(1440, 3)]),
    "max pooling": (
        (2, 9, 9),
        [conv(2, 6), RELU, pool("max", 3, 2), conv(6, 4), TANH, pool("max", 2, 1), FLATTEN, linear(36, 4)],
    ),
    "average pooling": (
        (2, 9, 8),
        [conv(2, 6), TANH, pool("avg", 2, 2), conv(6, 4), pool("avg", 3, 1), FLATTEN, linear(16, 4)],
    ),
    "normalisation": (
        (4, 7, 6),
        [conv(4, 6), norm(3), RELU, conv(6, 8, 3, 2, 0), norm(1), TANH, FLATTEN, linear(48, 6)],
    ),
    "groups": (
        (4, 8, 7),
        [conv(4, 6, groups=2), RELU, conv(6, 6, 3, 2, 1, 6), TANH, conv(6, 9, 3, 1, 0, 3), FLATTEN, linear(36, 5)],
    ),
} | {name: (CIFAR, preset(CIFAR)) for name, preset in PRESETS.items()}


def facts(gradients, seed):
    """Norm, projections and entries of every tensor; tensor `t` is projected on the vectors that the seeds
    seed + PROJECTIONS t, ... make."""
    rows = []
    for t, gradient in enumerate(gradients):
        flat = gradient.reshape(-1).numpy()
        vectors = [formula.units(seed + PROJECTIONS * t + p, flat.size) for p in range(PROJECTIONS)]
        rows.append(
            {
                "norm": float(np.linalg.norm(flat)),
                "projections": [float(flat @ vector) for vector in vectors],
                "entries": [float(flat[(2 * e + 1) * flat.size // (2 * ENTRIES)]) for e in range(ENTRIES)],
            }
        )
    return rows


def case(name, shape, layers, seed):
    plain = sequential(layers, shape[0]).double()
    with torch.no_grad():
        for tensor, value in zip(plain.parameters(), formula.parameters(plain, seed)):
            tensor.copy_(torch.from_numpy(value).double())
    examples = 3 if name.startswith("convnet") else 5
    image_seeds, images, candidate = [], [], 1000 * seed
    while len(images) < examples:
        candidate += 1
        if candidate > 1000 * seed + 500:
            raise SystemExit(f"{name}: no images keep away from the kinks; does it pool equal values?")
        image = torch.from_numpy(formula.image(candidate, (1, *shape))).double()
        with torch.no_grad():
            if margin(plain, image) > MARGIN:
                image_seeds.append(candidate)
                images.append(image)
    classes = layers[-1]["out_features"]
    labels = [3 * i % classes for i in range(examples)]
    model = GradSampleModule(plain, loss_reduction="sum")
    losses = nn.functional.cross_entropy(model(torch.cat(images)), torch.tensor(labels), reduction="none")
    losses.sum().backward()
    gradients = [parameter.grad_sample.detach() for parameter in model.parameters()]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    # Between two examples, so that some are clipped and some are not, and a rounding cannot tell.
    ordered = norms.sort().values
    clip = float((ordered[examples // 2] + ordered[examples // 2 - 1]) / 2)
    scales = (clip / norms).clamp(max=1)
    clipped = [torch.einsum("n...,n->...", g, scales) for g in gradients]
    projection_seed = 10**9 + 1000 * seed
    print(f"{name}: images {image_seeds}, norms {norms.numpy().round(4)}, clip {clip:.4f}")
    return {
        "name": name,
        "input": {"image": dict(zip(("channels", "height", "width"), shape))},
        "layers": layers,
        "parameter_seed": seed,
        "projection_seed": projection_seed,
        "examples": [
            {
                "image_seed": image_seeds[i],
                "label": labels[i],
                "loss": losses[i].item(),
                "norm": norms[i].item(),
                "tensors": facts([g[i] for g in gradients], projection_seed),
            }
            for i in range(examples)
        ],
        "clip_norm": clip,
        "clipped_sum": facts(clipped, projection_seed),
    }


def main():
    cases = [case(name, shape, layers, seed) for seed, (name, (shape, layers)) in enumerate(CASES.items(), 1)]
    maker = f"Opacus {opacus.__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}"
    content = {"maker": f"scripts/golden/opacus_gradients.py, {maker}", "cases": cases}
    text = json.dumps(content, indent=1)
    (formula.GOLDEN / "opacus.json").write_text(text + "\n")
    print(f"{len(text)} bytes")


if __name__ == "__main__":
    main()
