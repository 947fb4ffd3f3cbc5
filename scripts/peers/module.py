#!/usr/bin/env python3
"""Steps of burn modules beside Opacus: the same MLP, ConvNet and Transformer, private and plain, taking turns.

Not part of CI. Any Python from 3.10 on starts it:

    cargo bench -p dp-train --features flex --bench module --no-run
    python3 scripts/peers/module.py --out results/peers/module.md

It makes a throw-away environment with `pip install torch opacus==1.6.*` (some GB), or uses --python that has these. All
train in f32 on --threads threads; a step is forward, backward, clipping, noise and SGD, or without privacy forward,
backward and SGD. Contenders take turns for --rounds rounds; speeds are medians, ratios medians of the ratios
within a round.
"""

import argparse
import datetime
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import venv

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MODELS = ["mlp", "convnet", "transformer"]
OURS = ["plain", "taps"]
# As many as benches/module.rs times.
STEPS = 16
PEERS = ["torch-plain", "opacus-hooks", "opacus-ghost"]


# ---- The peers' side, in a process of its own. ----


def torch_model(name):
    import torch
    from torch import nn

    class ConvNet(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [(1, 16), (16, 32), (32, 32)]
            self.convolutions = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in sizes])
            self.norms = nn.ModuleList([nn.GroupNorm(4, b) for _, b in sizes])
            self.head = nn.Linear(32 * 49, 10)

        def layer(self, i, x):
            return torch.relu(self.norms[i](self.convolutions[i](x)))

        def forward(self, x):
            pool = nn.functional.max_pool2d
            x = pool(self.layer(0, x), 2)
            x = pool(self.layer(1, x), 2)
            return self.head((x + self.layer(2, x)).flatten(1))

    class Layer(nn.Module):
        """Attention of four linear layers, which all hooks know, before and behind norms as in burn's encoder."""

        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.output = (nn.Linear(64, 64) for _ in range(4))
            self.norm_1, self.norm_2 = nn.LayerNorm(64), nn.LayerNorm(64)
            self.inner, self.outer = nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x):
            n, length, width = x.shape
            heads = lambda y: y.reshape(n, length, 4, 16).transpose(1, 2)
            y = self.norm_2(x)
            query, key, value = heads(self.query(y)), heads(self.key(y)), heads(self.value(y))
            weights = torch.softmax(query @ key.transpose(2, 3) / 4.0, 3)
            x = x + self.output((weights @ value).transpose(1, 2).reshape(n, length, width))
            return x + self.outer(nn.functional.gelu(self.inner(self.norm_1(x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(1000, 64)
            self.layers = nn.Sequential(Layer(), Layer())
            self.head = nn.Linear(64, 10)

        def forward(self, words):
            return self.head(self.layers(self.words(words)).mean(1))

    if name == "mlp":
        linear = nn.Linear
        return nn.Sequential(
            linear(784, 512), nn.ReLU(), linear(512, 256), nn.ReLU(), linear(256, 10)
        )
    return ConvNet() if name == "convnet" else Transformer()


def torch_step(name, way, batch):
    import torch
    from torch import nn

    torch.manual_seed(1)
    model = torch_model(name)
    shape = {"mlp": [784], "convnet": [1, 28, 28], "transformer": [32]}[name]
    words = name == "transformer"
    x = torch.randint(0, 1000, [batch, *shape]) if words else torch.rand([batch, *shape]) * 2 - 1
    y = torch.randint(0, 10, [batch])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss()
    if way != "torch-plain":
        import warnings

        warnings.filterwarnings("ignore")
        from opacus import PrivacyEngine

        data = torch.utils.data.TensorDataset(x, y)
        loader = torch.utils.data.DataLoader(data, batch_size=batch)
        ghost = way == "opacus-ghost"
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            **({"criterion": loss, "grad_sample_mode": "ghost"} if ghost else {}),
        )
        model, optimizer = made[0], made[1]
        loss = made[2] if ghost else loss

    def step():
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def worker(threads):
    import time

    import torch

    torch.set_num_threads(threads)
    for line in sys.stdin:
        name, way, batch = line.split()
        step = torch_step(name, way, int(batch))
        step()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        print((time.perf_counter() - start) / STEPS, flush=True)


# ---- The comparison. ----


class Contender:
    def __init__(self, command, threads):
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def seconds(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"module.py: {words} ended without an answer")
        return float(answer)


def bench_binary():
    folder = REPOSITORY / "target" / "release" / "deps"
    found = [path for path in folder.glob("module-*") if path.suffix == ""]
    if not found:
        sys.exit("module.py: first cargo bench -p dp-train --features flex --bench module --no-run")
    return max(found, key=lambda path: path.stat().st_mtime)


def peak(binary, way, threads):
    """Bytes of one step of the ConvNet at batch 500, in a process of its own."""
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    command = [binary, "--peak", "convnet", way, "500"]
    return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="a Python with torch and opacus")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.threads)
    python = arguments.python
    if not python:
        folder = tempfile.mkdtemp(prefix="bandroot-peers-")
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-q", "torch", "opacus==1.6.*"], check=True)
    binary = bench_binary()
    ours = Contender([binary, "--worker"], arguments.threads)
    peers = Contender(
        [python, __file__, "--worker", "--threads", str(arguments.threads)], arguments.threads
    )
    speeds = {}
    for _ in range(arguments.rounds):
        for model in MODELS:
            for way in OURS + PEERS:
                contender = ours if way in OURS else peers
                seconds = contender.seconds(model, way, arguments.batch)
                speeds.setdefault((model, way), []).append(arguments.batch / seconds)

    def ratio(model, a, b):
        pairs = zip(speeds[model, a], speeds[model, b])
        return statistics.median(x / y for x, y in pairs)

    lines = [
        f"Examples/s of training, batch {arguments.batch}, {arguments.threads} threads, medians of "
        f"{arguments.rounds} rounds; {platform.machine()}, {datetime.date.today()}.",
        "",
        "| model | burn plain | ours, taps | taps / plain | PyTorch plain | Opacus hooks | Opacus ghost "
        "| Opacus best / plain | ours / Opacus best |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for model in MODELS:
        median = lambda way: statistics.median(speeds[model, way])
        best = max(PEERS[1:], key=median)
        cells = [median(way) for way in ("plain", "taps")]
        row = [f"{cells[0]:,.0f}", f"{cells[1]:,.0f}", f"{ratio(model, 'taps', 'plain'):.2f}"]
        row += [f"{median(way):,.0f}" for way in PEERS]
        row += [f"{ratio(model, best, 'torch-plain'):.2f}", f"{ratio(model, 'taps', best):.2f}"]
        lines.append(f"| {model} | " + " | ".join(row) + " |")
    plain, taps = (peak(binary, way, arguments.threads) for way in ("plain", "taps"))
    lines += [
        "",
        f"Peak memory of a process that takes one step of the ConvNet at batch 500: {plain / 1e6:.0f} MB plain, "
        f"{taps / 1e6:.0f} MB by taps, {taps / plain:.2f} of it.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
