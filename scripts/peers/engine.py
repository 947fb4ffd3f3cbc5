#!/usr/bin/env python3
"""Private gradients per second: Opacus, torch.func and JAX against `bandroot bench engine`, taking turns.

Not part of CI. Any Python from 3.10 on starts it:

    cargo build --release --bin bandroot
    python3 scripts/peers/engine.py --out results/peers/engine.md

It makes a throw-away environment with `pip install torch opacus==1.6.* jax` (some GB; --venv says where), or uses
--python and --jax-python that have these already. All run the paper's ConvNet in f32 on the same --threads cores.

Every private contender clips each example's gradient to norm 1 and sums: what a step of DP-SGD needs before noise.
PyTorch's plain forward and backward is the price of no privacy. Each contender is a process of its own that works only
when told to. First each is scanned once over batch sizes to find its best; then all take turns for --rounds rounds,
each with about 500 examples at batch 500 and at its own best batch size (--batch, --examples and --sizes change
that). Speeds are medians; ratios are medians of the ratios within a round. What takes longer than --cap seconds is
given up and shown as slower than that. Cost: ten minutes to an hour, nearly all of it the peers'.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
import venv

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
REPOSITORY = SCRIPTS.parent
SIZES = [16, 32, 64, 128, 256, 500]
CONTENDERS = {
    "bandroot": "ours, private",
    "bandroot-plain": "ours, plain gradient",
    "torch-plain": "PyTorch, plain forward and backward",
    "torch-plain-nhwc": "PyTorch, plain, channels last",
    "opacus-hooks": "Opacus, hooks",
    "opacus-functorch": "Opacus, functorch",
    "opacus-ew": "Opacus, expanded weights",
    "opacus-ghost": "Opacus, ghost clipping",
    "torch-func": "torch.func, vmap of grad",
    "jax": "JAX, vmap of grad",
}


# ---- The work itself, inside a worker process. ----


def torch_step(name, threads):
    """A function that makes one gradient of a batch, and one that makes the batch."""
    import torch
    from torch import nn

    sys.path.insert(0, str(SCRIPTS))
    from convnet import CIFAR, PRESETS, sequential

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = sequential(PRESETS["convnet"](CIFAR), 3)
    layout = torch.channels_last if name == "torch-plain-nhwc" else torch.contiguous_format

    def batch(size):
        images = torch.rand(size, 3, 32, 32) * 2 - 1
        return images.to(memory_format=layout), torch.arange(size) % 10

    def clip(gradients):
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        scales = (1.0 / norms).clamp(max=1)
        return [torch.einsum("n...,n->...", g, scales) for g in gradients]

    loss_of = nn.CrossEntropyLoss()
    if name.startswith("torch-plain"):
        model = model.to(memory_format=layout)

        def step(images, labels):
            model.zero_grad()
            loss_of(model(images), labels).backward()

    elif name == "torch-func":
        from torch.func import functional_call, grad, vmap

        parameters = {key: value.detach() for key, value in model.named_parameters()}

        def loss(parameters, image, label):
            return loss_of(functional_call(model, parameters, (image[None],)), label[None])

        per_example = vmap(grad(loss), in_dims=(None, 0, 0))

        def step(images, labels):
            clip(list(per_example(parameters, images, labels).values()))

    elif name == "opacus-ghost":
        from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
            GradSampleModuleFastGradientClipping,
        )
        from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        model = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
        sgd = torch.optim.SGD(model.parameters(), lr=0.0)
        optimizer = DPOptimizerFastGradientClipping(
            sgd, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=1
        )
        criterion = DPLossFastGradientClipping(model, optimizer, loss_of)

        def step(images, labels):
            optimizer.zero_grad()
            criterion(model(images), labels).backward()

    else:
        from opacus.grad_sample.utils import wrap_model

        mode = name.removeprefix("opacus-")
        model = wrap_model(model, grad_sample_mode=mode)

        def step(images, labels):
            for parameter in model.parameters():
                parameter.grad = parameter.grad_sample = None
            loss_of(model(images), labels).backward()
            with torch.no_grad():
                clip([parameter.grad_sample for parameter in model.parameters()])

    return step, batch


def jax_step():
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_platforms", "cpu")
    random = np.random.default_rng(1)
    shapes = []
    for inner, outer in [(3, 32), (32, 64), (64, 128)]:
        shapes += [(outer, inner, 3, 3), (outer, outer, 3, 3)]

    def uniform(shape, fan_in):
        return jnp.asarray(random.uniform(-1, 1, shape) / np.sqrt(fan_in), dtype=jnp.float32)

    parameters = [(uniform(s, 9 * s[1]), uniform(s[:1], 9 * s[1])) for s in shapes]
    parameters.append((uniform((10, 2048), 2048), uniform((10,), 2048)))

    def loss(parameters, image, label):
        x = image[None]
        for layer, (weight, bias) in enumerate(parameters[:-1]):
            x = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
            x = jax.nn.relu(x + bias[None, :, None, None])
            if layer % 2 == 1:
                window = (1, 1, 2, 2)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        weight, bias = parameters[-1]
        return -jax.nn.log_softmax(weight @ x.reshape(-1) + bias)[label]

    @jax.jit
    def clipped_sum(parameters, images, labels):
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, images, labels)
        leaves = jax.tree_util.tree_leaves(gradients)
        norms = jnp.sqrt(sum(jnp.sum(g.reshape(g.shape[0], -1) ** 2, axis=1) for g in leaves))
        scales = jnp.minimum(1.0, 1.0 / norms)
        return [jnp.einsum("n...,n->...", g, scales) for g in leaves]

    def batch(size):
        images = random.uniform(-1, 1, (size, 3, 32, 32)).astype(np.float32)
        return jnp.asarray(images), jnp.asarray(np.arange(size) % 10)

    def step(images, labels):
        jax.block_until_ready(clipped_sum(parameters, images, labels))

    return step, batch


def work(name, threads, examples):
    """Reads batch sizes from standard input; answers each with the seconds per example."""
    # Libraries print to standard output too; answers go where they cannot.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    step, batch = jax_step() if name == "jax" else torch_step(name, threads)
    known = {}
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        size = int(line)
        if size not in known:
            known = {size: batch(size)}
            # The first one allocates, traces and compiles.
            step(*known[size])
        count = max(1, examples // size)
        start = time.perf_counter()
        for _ in range(count):
            step(*known[size])
        seconds = (time.perf_counter() - start) / (count * size)
        status = pathlib.Path("/proc/self/status")
        mark = [l.split()[1] for l in status.read_text().splitlines() if l.startswith("VmHWM")] if status.exists() else []
        print(json.dumps({"seconds": seconds, "peak_kib": int(mark[0]) if mark else None}), file=answers, flush=True)


# ---- The referee. ----


class GivenUp(Exception):
    """A contender that cannot go on, and why."""


class Worker:
    """A contender in a process of its own."""

    def __init__(self, name, python, arguments):
        self.name, self.python, self.cap = name, python, arguments.cap
        self.threads, self.examples = arguments.threads, arguments.examples
        self.process, self.log = None, tempfile.TemporaryFile("w+")

    def start(self):
        limits = {key: str(self.threads) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        # Threads that wait must not spin while others are measured.
        limits |= {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "PYTHONWARNINGS": "ignore"}
        command = [self.python, __file__, "--worker", self.name, "--threads", self.threads]
        command += ["--examples", self.examples]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ | limits,
        )
        # Imports are slow on a cold disk, and are not what is measured.
        self.answer(300)

    def answer(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else None
        if not line:
            running = self.process.poll() is None
            self.stop()
            self.log.seek(0)
            last = (self.log.read().strip().splitlines() or ["no message"])[-1]
            raise GivenUp(f"over {seconds:.0f} s" if running and not ready else f"failed: {last[:100]}")
        return json.loads(line)

    def measure(self, size):
        """Samples per second, and peak memory so far."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(f"{size}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            # It died in the meantime: its last words are in the log.
            pass
        answer = self.answer(self.cap)
        return 1 / answer["seconds"], answer["peak_kib"]

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Ours:
    """`bandroot bench engine`, a fresh process each time; plain and private come from the same call."""

    def __init__(self, arguments):
        self.program, self.cap = arguments.bandroot, arguments.cap
        self.threads, self.examples = arguments.threads, arguments.examples

    def report(self, size):
        rounds = max(1, self.examples // size)
        command = [self.program, "bench", "engine", "--threads", self.threads, "--batch", size, "--rounds", rounds]
        result = subprocess.run(
            list(map(str, command)) + ["--json"], check=True, capture_output=True, timeout=self.cap
        )
        return json.loads(result.stdout)


def environment(arguments):
    """The Pythons with PyTorch and Opacus, and with JAX."""
    torch, jax = arguments.python, arguments.jax_python
    if torch is None or jax is None:
        folder = arguments.venv
        python = folder / "bin/python"
        if not python.exists():
            print(f"making the environment {folder}", file=sys.stderr)
            venv.create(folder, with_pip=True)
        wanted = (["torch", "opacus==1.6.*"] if torch is None else []) + (["jax"] if jax is None else [])
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
        torch, jax = torch or python, jax or python
    return torch, jax


def versions(python, modules):
    code = "import importlib.metadata as m, sys; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    result = subprocess.run([python, "-c", code, *modules], capture_output=True, text=True)
    return result.stdout.strip() or "unknown versions"


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def speeds(contestants, name, size):
    """{contender: samples per second} of one turn, and the peak memory in KiB."""
    contestant = contestants[name]
    if isinstance(contestant, Ours):
        report = contestant.report(size)
        peak = report["peak_memory_bytes"]
        return {
            "bandroot": report["private_samples_per_second"],
            "bandroot-plain": report["plain_samples_per_second"],
        }, peak and peak // 1024
    rate, peak = contestant.measure(size)
    return {name: rate}, peak


def compete(contestants, arguments):
    """(samples[contender][size], best[contender], notes[(contender, size)], peaks[contender])."""
    turns = [name for name in contestants if name != "bandroot-plain"]
    best, notes, peaks = {}, {}, {}
    for name in turns:
        scanned = {}
        for size in arguments.sizes:
            try:
                rates, _ = speeds(contestants, name, size)
            except (GivenUp, subprocess.TimeoutExpired) as reason:
                notes[name, size] = str(reason) if isinstance(reason, GivenUp) else f"over {arguments.cap:.0f} s"
                print(f"scan {name} batch {size}: {notes[name, size]}", file=sys.stderr, flush=True)
                continue
            for contender, rate in rates.items():
                scanned.setdefault(contender, {})[size] = rate
            shown = ", ".join(f"{rate:.0f}/s" for rate in rates.values())
            print(f"scan {name} batch {size}: {shown}", file=sys.stderr, flush=True)
        for contender, rates in scanned.items():
            best[contender] = max(rates, key=rates.get)
    samples = {}
    for number in range(arguments.rounds):
        # Every other round goes backwards, so that nobody always follows the same one.
        for name in turns if number % 2 == 0 else turns[::-1]:
            members = ["bandroot", "bandroot-plain"] if name == "bandroot" else [name]
            for size in sorted({arguments.batch} | {best[m] for m in members if m in best}):
                if (name, size) in notes:
                    continue
                try:
                    rates, peak = speeds(contestants, name, size)
                except (GivenUp, subprocess.TimeoutExpired) as reason:
                    notes[name, size] = str(reason) if isinstance(reason, GivenUp) else f"over {arguments.cap:.0f} s"
                    continue
                peaks[name] = max(peaks.get(name) or 0, peak or 0)
                for contender, rate in rates.items():
                    samples.setdefault(contender, {}).setdefault(size, {})[number] = rate
        print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr, flush=True)
    return samples, best, notes, peaks


def ratio(ours, theirs):
    """The median over rounds that both took part in, with least and largest."""
    shared = [ours[number] / theirs[number] for number in theirs if number in ours]
    if not shared:
        return "-"
    return f"{statistics.median(shared):.2f} ({min(shared):.2f} to {max(shared):.2f})"


def table(names, batch, samples, best, notes, peaks):
    head = ["", f"batch {batch}, /s", "ours / it", "best batch", "at its best, /s", "ours at best / it", "peak MiB"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    large = samples.get("bandroot", {}).get(batch, {})
    top = samples.get("bandroot", {}).get(best.get("bandroot"), {})
    for name in names:
        at_large = samples.get(name, {}).get(batch, {})
        size = best.get(name)
        at_best = samples.get(name, {}).get(size, {})
        middle = lambda values: f"{statistics.median(values.values()):.0f}" if values else None
        peak = peaks.get(name)
        cells = [
            CONTENDERS[name],
            middle(at_large) or notes.get((name, batch), "not measured"),
            ratio(large, at_large),
            str(size or "-"),
            middle(at_best) or "-",
            ratio(top, at_best),
            f"{peak / 1024:.0f}" if peak else "-",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=500, help="the batch size at which all are compared")
    parser.add_argument("--examples", type=int, default=500, help="examples of one measurement, at least a batch")
    parser.add_argument("--cap", type=float, default=180, help="seconds after which one measurement is given up")
    parser.add_argument("--sizes", type=lambda text: [int(s) for s in text.split(",")], default=SIZES,
                        help="batch sizes to scan")
    parser.add_argument("--only", help="comma-separated contenders besides ours: " + ", ".join(CONTENDERS))
    parser.add_argument("--bandroot", type=pathlib.Path, default=REPOSITORY / "target/release/bandroot")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has torch and opacus")
    parser.add_argument("--jax-python", type=pathlib.Path, help="a Python that has jax")
    parser.add_argument("--venv", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "bandroot-peers")
    parser.add_argument("--out", type=pathlib.Path, help="write the table to this Markdown file too")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.worker, arguments.threads, arguments.examples)
    names = list(CONTENDERS)
    if arguments.only:
        wanted = arguments.only.split(",")
        for name in wanted:
            if name not in CONTENDERS:
                parser.error(f"--only {name} is none of {', '.join(CONTENDERS)}")
        names = ["bandroot", "bandroot-plain"] + [n for n in names if n in wanted and not n.startswith("bandroot")]
    if not arguments.bandroot.exists():
        parser.error(f"{arguments.bandroot} is missing: cargo build --release --bin bandroot, or give --bandroot")
    if hasattr(os, "sched_setaffinity"):
        # Children inherit it: libraries that count cores themselves count these.
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < arguments.threads:
            parser.error(f"--threads {arguments.threads}, but there are {len(cores)} cores")
        os.sched_setaffinity(0, cores[: arguments.threads])
    torch, jax = environment(arguments)
    ours = Ours(arguments)
    contestants = {
        name: ours
        if name.startswith("bandroot")
        else Worker(name, jax if name == "jax" else torch, arguments)
        for name in names
    }
    load = os.getloadavg()[0]
    try:
        samples, best, notes, peaks = compete(contestants, arguments)
    finally:
        for contestant in contestants.values():
            if isinstance(contestant, Worker):
                contestant.stop()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True)
    text = (
        "# Private gradients per second: the paper's ConvNet, f32\n\n"
        f"Written by `scripts/peers/engine.py` on {datetime.date.today()}, commit {commit.stdout.strip()}: "
        f"{arguments.rounds} rounds in turns on {arguments.threads} cores of {machine()}; "
        f"load before it {load:.1f}.\n"
        f"Python {platform.python_version()}, {versions(torch, ['torch', 'opacus'])}, {versions(jax, ['jax'])}.\n"
        "Examples per second are medians; ratios are medians (least to largest) of the ratios within a round. "
        "Memory is the peak of the process.\n\n" + table(names, arguments.batch, samples, best, notes, peaks)
    )
    print(text, end="")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        partial = arguments.out.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
