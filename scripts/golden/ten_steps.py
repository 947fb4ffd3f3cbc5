#!/usr/bin/env python3
"""Ten steps of both ConvNets without noise, in PyTorch with per-example gradients by Opacus.

    python3 -m venv "$ENV" && "$ENV"/bin/pip install torch opacus==1.6.0 numpy
    "$ENV"/bin/python scripts/golden/ten_steps.py

Writes crates/dp-train/tests/golden/ten_steps.json in about a minute. Each step clips the gradient of every example
to CLIP_NORM, sums, divides by the batch size, and updates

    m     <- beta m + g
    theta <- alpha theta - eta m

The file holds, per step, the mean loss before it and the norm of all parameters after it; and per tensor how far it
has moved in the end. Weights and images follow scripts/golden/formula.py; images that come too close to a kink of
ReLU or max pooling are left out (scripts/golden/kinks.py). The results are of f64; those of an f32
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
from kinks import MARGIN, margin

STEPS, BATCH_SIZE, CLIP_NORM = 10, 8, 1.3
ALPHA, BETA, ETA = 0.999, 0.9, 0.125
SEEDS = {"convnet": 21, "convnet-tanh": 22}


def picture(seed, label, pattern_seed):
    """Noise with the pattern of its class added, so that there is something to learn."""
    return (formula.units(seed, 3072) + formula.units(pattern_seed + label, 3072)).astype(np.float32)


def batch(model, labels, first_seed, pattern_seed):
    """Seeds of images, in order but for those that come too close to a kink."""
    seeds, seed = [], first_seed
    for label in labels:
        while True:
            seed += 1
            image = torch.from_numpy(picture(seed, label, pattern_seed)).double().reshape(1, 3, 32, 32)
            with torch.no_grad():
                if margin(model, image) > MARGIN:
                    break
        seeds.append(seed)
    return seeds


def train(name, dtype, seeds):
    """The course of a run; appends the seeds of its images to `seeds` unless they are there."""
    plain = sequential(PRESETS[name](CIFAR), 3).to(dtype)
    parameters = list(plain.parameters())
    with torch.no_grad():
        for tensor, value in zip(parameters, formula.parameters(plain, SEEDS[name])):
            tensor.copy_(torch.from_numpy(value))
    start = [tensor.detach().clone() for tensor in parameters]
    momenta = [torch.zeros_like(tensor) for tensor in parameters]
    # The decay factor and so on as f32, as they are applied to f32 parameters.
    alpha, beta, eta = (float(np.float32(x)) for x in (ALPHA, BETA, ETA))
    losses, norms = [], []
    pattern_seed = 1000 * SEEDS[name]
    for step in range(STEPS):
        labels = [(7 * i + 3 * step) % 10 for i in range(BATCH_SIZE)]
        if len(seeds) == step:
            seeds.append(batch(plain, labels, pattern_seed + 100 * (step + 1), pattern_seed))
        images = np.stack([picture(seed, label, pattern_seed) for seed, label in zip(seeds[step], labels)])
        images = torch.from_numpy(images).to(dtype).reshape(BATCH_SIZE, 3, 32, 32)
        model = GradSampleModule(plain, loss_reduction="sum")
        loss = nn.functional.cross_entropy(model(images), torch.tensor(labels), reduction="none")
        loss.sum().backward()
        gradients = [tensor.grad_sample.detach() for tensor in parameters]
        # Back to the plain model, whose layers kinks.py walks through without hooks.
        model.to_standard_module()
        sizes = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        scales = (CLIP_NORM / sizes).clamp(max=1)
        with torch.no_grad():
            for tensor, m, g in zip(parameters, momenta, gradients):
                m.mul_(beta).add_(torch.einsum("n...,n->...", g, scales) / BATCH_SIZE)
                tensor.mul_(alpha).sub_(eta * m)
                tensor.grad = None
        losses.append(loss.detach().double().mean().item())
        norms.append(torch.stack([tensor.detach().double().norm() for tensor in parameters]).norm().item())
        clipped = int((sizes > CLIP_NORM).sum())
        print(f"{name} {dtype} step {step}: loss {losses[-1]:.6f}, {clipped} clipped", flush=True)
    moved = [(tensor.detach() - old).double().norm().item() for tensor, old in zip(parameters, start)]
    return {"losses": losses, "parameter_norms": norms, "moved": moved}


def main():
    runs = []
    for name, seed in SEEDS.items():
        seeds = []
        courses = {"f64": train(name, torch.float64, seeds), "f32": train(name, torch.float32, seeds)}
        run = {"model": name, "parameter_seed": seed, "pattern_seed": 1000 * seed, "image_seeds": seeds}
        runs.append(run | courses)
    maker = f"PyTorch {torch.__version__}, Opacus {opacus.__version__}, Python {platform.python_version()}"
    settings = {"steps": STEPS, "batch_size": BATCH_SIZE, "clip_norm": CLIP_NORM}
    settings |= {"decay_factor": ALPHA, "momentum": BETA, "learning_rate": ETA}
    content = {"maker": f"scripts/golden/ten_steps.py, {maker}"} | settings | {"runs": runs}
    (formula.GOLDEN / "ten_steps.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
