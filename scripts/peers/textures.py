#!/usr/bin/env python3
"""How hard is the embedded data set? A linear model and the paper's ConvNet, not private, in PyTorch.

    bandroot data export textures --out /tmp/textures
    scripts/peers/textures.py /tmp/textures --epochs 30

Not part of CI. Prints the share of right test pictures after every epoch, and per class at the end. About a
minute per epoch of the ConvNet on one core; `--width 16` halves its layers and takes a third of that. Needs
PyTorch and NumPy; the numbers in datasets/README.md were made with torch 2.15.0.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

CLASSES = 10


def load(path):
    """Pictures in [-1, 1] and labels from a file of `bandroot data export`."""
    records = np.fromfile(path, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    pixels = torch.tensor(records[:, 1:].reshape(-1, 3, 32, 32)).float() / 127.5 - 1
    return pixels, torch.tensor(records[:, 0]).long()


def convnet(width):
    """Six 3 x 3 convolutions in three blocks, then one dense layer; 307,498 parameters at width 32."""
    layers, channels = [], 3
    for block in range(3):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width << block, 3, padding=1), nn.ReLU()]
            channels = width << block
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * 16, CLASSES))


@torch.no_grad()
def predict(model, pixels):
    return torch.cat([model(batch).argmax(1) for batch in pixels.split(500)])


def fit(name, model, train, test, epochs, rate):
    pixels, labels = train
    steps = len(labels) // 100
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps * epochs)
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(labels))[: steps * 100].split(100):
            loss = nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        right = predict(model, test[0]) == test[1]
        print(f"{name} epoch {epoch} test {right.float().mean():.4f}", flush=True)
    per_class = [right[test[1] == label].float().mean().item() for label in range(CLASSES)]
    print(f"{name} per class", " ".join(f"{share:.2f}" for share in per_class))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    train, test = load(arguments.folder / "train.bin"), load(arguments.folder / "test.bin")
    linear = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, CLASSES))
    fit("linear", linear, train, test, 10, 1e-4)
    fit("convnet", convnet(arguments.width), train, test, arguments.epochs, 1e-3)


if __name__ == "__main__":
    main()
