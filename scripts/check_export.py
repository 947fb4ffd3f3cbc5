#!/usr/bin/env python3
"""Loads the exported parameters of a run into the same model in PyTorch, and compares logits and accuracy.

    python3 -m venv "$ENV" && "$ENV"/bin/pip install torch numpy safetensors
    cargo build --release --bin bandroot
    "$ENV"/bin/python scripts/check_export.py RUN_DIR [--bandroot PROGRAM]

Ours are what `bandroot eval RUN_DIR` says of the test examples; PyTorch's come from parameters.safetensors, the model
that config.toml names, and the test examples that `bandroot data export` writes. The logits must agree to 1e-4 (of
the largest, if that is above 1), the accuracies exactly but for examples whose two largest logits differ by less
than that, and the losses to 1e-4. Exit code 0 says yes, 1 says no, 2 that nothing could be compared. Seconds to a
minute.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import numpy as np
import torch
from safetensors.torch import load_file

from convnet import PRESETS, sequential

TOLERANCE = 1e-4
SHAPES = {"textures": (3, 32, 32), "cifar10": (3, 32, 32), "fashion-mnist": (1, 28, 28)}
REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def fail(message):
    print(f"check_export: {message}", file=sys.stderr)
    raise SystemExit(2)


def call(command):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        fail(f"{' '.join(map(str, command))} ended with code {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def examples(bandroot, data, shape, folder):
    """The test examples as the model sees them, and their labels."""
    command = [bandroot, "data", "export", data["name"], "--out", folder]
    call(command + (["--dir", data["folder"]] if "folder" in data else []))
    length = 1 + shape[0] * shape[1] * shape[2]
    records = np.fromfile(pathlib.Path(folder) / "test.bin", dtype=np.uint8)
    if records.size == 0 or records.size % length:
        fail(f"test.bin has {records.size} bytes, not whole records of {length}")
    records = records.reshape(-1, length)[: data.get("test_examples")]
    pixels = records[:, 1:].reshape(-1, *shape)
    # As Split::decode: bytes 0..255 to [-1, 1], rounded once.
    decoded = (2 * pixels.astype(np.int16) - 255).astype(np.float32) / np.float32(255)
    return torch.from_numpy(decoded), torch.from_numpy(records[:, 0].astype(np.int64))


def ours(bandroot, run, folder):
    """What our side says: the report, and labels and logits of every test example."""
    file = pathlib.Path(folder) / "logits.csv"
    report = json.loads(call([bandroot, "eval", run, "--split", "test", "--json", "--logits", file]))
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    columns = [name for name in (rows[0] if rows else []) if name.startswith("logit_")]
    logits = torch.tensor([[float(row[name]) for name in columns] for row in rows], dtype=torch.float64)
    return report, torch.tensor([int(row["label"]) for row in rows]), logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="the folder of a finished run")
    parser.add_argument("--bandroot", type=pathlib.Path, default=REPOSITORY / "target/release/bandroot")
    arguments = parser.parse_args()
    for needed in [arguments.run / "config.toml", arguments.run / "parameters.safetensors", arguments.bandroot]:
        if not needed.exists():
            fail(f"{needed} is missing")
    config = tomllib.loads((arguments.run / "config.toml").read_text())
    data, model = config["data"], config["model"]
    shape = SHAPES.get(data["name"]) or fail(f"no shape is known for the data set {data['name']}")
    if "layers" in model:
        layers = model["layers"]
    elif model["name"] in PRESETS:
        layers = PRESETS[model["name"]](shape)
    else:
        fail(f"the model {model['name']} is none of {', '.join(PRESETS)}, and has no layers")
    with tempfile.TemporaryDirectory() as folder:
        images, labels = examples(arguments.bandroot, data, shape, folder)
        report, our_labels, our_logits = ours(arguments.bandroot, arguments.run, folder)
    if not torch.equal(labels, our_labels) or report["examples"] != len(labels):
        fail(f"the {len(labels)} exported test examples are not the {report['examples']} of the run")
    model = sequential(layers, shape[0])
    # strict: every name and shape must be there, and no other.
    model.load_state_dict(load_file(arguments.run / "parameters.safetensors"), strict=True)
    with torch.no_grad():
        logits = torch.cat([model(part) for part in images.split(500)]).double()
    if our_logits.shape != logits.shape:
        fail(f"our logits are {tuple(our_logits.shape)}, PyTorch's {tuple(logits.shape)}")
    scale = max(1.0, logits.abs().max().item())
    difference = (our_logits - logits).abs().max().item() / scale
    correct = (logits.argmax(1) == labels).sum().item()
    our_correct = report["test_accuracy"] * len(labels)
    two = logits.topk(2).values
    undecided = (two[:, 0] - two[:, 1] <= 2 * TOLERANCE * scale).sum().item()
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    print(f"{len(labels)} test examples")
    print(f"logits    differ by {difference:.1e} at most (allowed {TOLERANCE:.0e})")
    print(f"accuracy  {our_correct / len(labels):.4f} ours, {correct / len(labels):.4f} PyTorch, {undecided} undecided")
    print(f"loss      {report['test_loss']:.6f} ours, {loss:.6f} PyTorch")
    agree = difference <= TOLERANCE and abs(our_correct - correct) <= undecided + 1e-6
    agree &= abs(report["test_loss"] - loss) <= TOLERANCE * max(1.0, loss)
    print("agree" if agree else "DISAGREE")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
