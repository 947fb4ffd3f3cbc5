#!/usr/bin/env python3
"""Ten steps of both ConvNets without noise, in PyTorch with per-example gradients by Opacus.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch opacus==1.6.0 numpy
    /tmp/golden/bin/python scripts/golden/ten_steps.py

Writes crates/dp-train/tests/golden/ten_steps.json in about a minute. Each step clips the gradient of every example
to CLIP_NORM, sums, divides by the batch size, and updates

    m     <- beta m + g
    theta <- alpha theta - eta m

The file holds, per step, the mean loss before it and the norm of all parameters after it; and per tensor how far it
has moved in the end. Weights and images follow scripts/golden/formula.py. The results are of f64; those of an f32
run of PyTorch stand beside them and show what f32 accuracy is here.
"""

import json
import platform

import formula
import numpy as np
import opacus
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from convnet import CIFAR, PRESETS, sequential

STEPS, BATCH_SIZE, CLIP_NORM = 10, 8, 1.3
ALPHA, BETA, ETA = 0.999, 0.9, 0.125
SEEDS = {"convnet": 21, "convnet-tanh": 22}


def batch(seed, step, labels):
    """Noise with the pattern of the class added, so that there is something to learn."""
    noise = formula.units(seed + 100 + step, BATCH_SIZE * 3072).reshape(BATCH_SIZE, 3, 32, 32)
    patterns = [formula.units(seed + int(label), 3072).reshape(3, 32, 32) for label in labels]
    return (noise + np.stack(patterns)).astype(np.float32)


def train(name, dtype):
    model = GradSampleModule(sequential(PRESETS[name](CIFAR), 3).to(dtype), loss_reduction="sum")
    parameters = list(model.parameters())
    with torch.no_grad():
        for tensor, value in zip(parameters, formula.parameters(model, SEEDS[name])):
            tensor.copy_(torch.from_numpy(value))
    start = [tensor.detach().clone() for tensor in parameters]
    momenta = [torch.zeros_like(tensor) for tensor in parameters]
    # The decay factor and so on as f32, as they are applied to f32 parameters.
    alpha, beta, eta = (float(np.float32(x)) for x in (ALPHA, BETA, ETA))
    losses, norms = [], []
    for step in range(STEPS):
        labels = torch.tensor([(7 * i + 3 * step) % 10 for i in range(BATCH_SIZE)])
        images = batch(1000 * SEEDS[name], step, labels)
        model.zero_grad()
        logits = model(torch.from_numpy(images).to(dtype))
        loss = nn.functional.cross_entropy(logits, labels, reduction="none")
        loss.sum().backward()
        gradients = [tensor.grad_sample for tensor in parameters]
        sizes = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        scales = (CLIP_NORM / sizes).clamp(max=1)
        with torch.no_grad():
            for tensor, m, g in zip(parameters, momenta, gradients):
                m.mul_(beta).add_(torch.einsum("n...,n->...", g, scales) / BATCH_SIZE)
                tensor.mul_(alpha).sub_(eta * m)
        losses.append(loss.double().mean().item())
        norms.append(torch.stack([tensor.detach().double().norm() for tensor in parameters]).norm().item())
        print(f"{name} {dtype} step {step}: loss {losses[-1]:.6f}, {int((sizes > CLIP_NORM).sum())} clipped", flush=True)
    moved = [(tensor.detach() - old).double().norm().item() for tensor, old in zip(parameters, start)]
    return {"losses": losses, "parameter_norms": norms, "moved": moved}


def main():
    runs = []
    for name, seed in SEEDS.items():
        run = {"model": name, "parameter_seed": seed, "image_seed": 1000 * seed}
        runs.append(run | {"f64": train(name, torch.float64), "f32": train(name, torch.float32)})
    maker = f"PyTorch {torch.__version__}, Opacus {opacus.__version__}, Python {platform.python_version()}"
    settings = {"steps": STEPS, "batch_size": BATCH_SIZE, "clip_norm": CLIP_NORM}
    settings |= {"decay_factor": ALPHA, "momentum": BETA, "learning_rate": ETA}
    content = {"maker": f"scripts/golden/ten_steps.py, {maker}"} | settings | {"runs": runs}
    (formula.GOLDEN / "ten_steps.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
