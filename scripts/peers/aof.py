#!/usr/bin/env python3
"""Time to the same error: jax_privacy's banded.optimize against `bandroot factorize --method aof`.

Not part of CI. In a throw-away environment:

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install jax-privacy
    cargo build --release --bin bandroot
    /tmp/peer/bin/python scripts/peers/aof.py [--steps 500,1000,2000] [--jax-steps 100]

Both run on this machine, one after the other, for the prefix sum (alpha 1, beta 0) and b = 100 bands,
k = n / 100. Ours runs from nothing to a certified gap of 1e-4. Then jax_privacy's default L-BFGS runs until its
error is as small, or for --jax-steps iterations (the ratio is then a lower bound, marked >); its time is counted
without the first iteration, which compiles. Cost: minutes, nearly all of it jax_privacy's at n = 2000.
"""

import argparse
import json
import math
import pathlib
import subprocess
import time

from jax_privacy.matrix_factorization import banded

BANDROOT = pathlib.Path(__file__).resolve().parents[2] / "target/release/bandroot"


def jax_privacy(steps, bands, iterations, target):
    """(expected error, iterations, seconds after compilation, seconds of the first iteration)."""
    marks = [time.perf_counter()]
    errors = []

    def record(args):
        # The loss is the mean squared error of a strategy with unit columns.
        errors.append(math.sqrt(steps / bands * float(args.loss)))
        marks.append(time.perf_counter())
        return errors[-1] <= target

    banded.optimize(steps, bands=bands, max_optimizer_steps=iterations, callback=record)
    return min(errors), len(errors), marks[-1] - marks[1], marks[1] - marks[0]


def bandroot(steps, bands, tolerance):
    """(expected error, seconds, certified gap)."""
    command = [str(BANDROOT), "factorize", "--method", "aof", "--steps", str(steps)]
    command += ["--separation", str(bands), "--tolerance", str(tolerance), "--no-cache", "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return report["expected_error"], report["seconds"], report["certified_gap"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default="500,1000,2000", help="comma-separated numbers of steps")
    parser.add_argument("--jax-steps", type=int, default=300, help="most iterations of jax_privacy")
    parser.add_argument("--bands", type=int, default=100)
    arguments = parser.parse_args()
    print("| n | bandroot error | gap | s | jax_privacy error | iterations | s | first s | ratio |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for steps in map(int, arguments.steps.split(",")):
        error, seconds, gap = bandroot(steps, arguments.bands, 1e-4)
        peer = jax_privacy(steps, arguments.bands, arguments.jax_steps, error)
        peer_error, iterations, peer_seconds, first_seconds = peer
        mark = "" if peer_error <= error else "> "
        print(
            f"| {steps} | {error:.6f} | {gap:.1e} | {seconds:.2f} | {peer_error:.6f} | {iterations} "
            f"| {peer_seconds:.1f} | {first_seconds:.1f} | {mark}{peer_seconds / seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
