#!/usr/bin/env python3
"""Time to calibrated noise: `bandroot calibrate` against dp_accounting (Poisson) and jax_privacy (balls-in-bins).

Not part of CI. In a throw-away environment:

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install dp-accounting jax-privacy
    cargo build --release --bin bandroot
    /tmp/peer/bin/python scripts/peers/accounting.py

All run on this machine, one after the other; ours with the start of its process.

Poisson: dp_accounting's calibrate_dp_mechanism with its PLD accountant, to a tolerance of 1e-5 in the multiplier.

Balls-in-bins: ten epochs of BSR with 100 bands, epsilon 8, delta 1e-5. Ours ends with noise whose delta is verified. jax_privacy
verifies by plain samples: of how many it needs for a bound as close to its mean as ours (minimum_samples_to_calibrate),
1,000 are drawn, and the time of the rest is extrapolated. Evaluating their likelihood ratios, the second direction and the
search for the noise are not counted, so the ratio is a lower bound. Cost: a minute or two.
"""

import json
import pathlib
import subprocess
import time

import dp_accounting
import numpy as np
from dp_accounting import pld
from jax_privacy import batch_selection
from jax_privacy.experimental.monte_carlo import delta_calculation, sample_generation

BANDROOT = pathlib.Path(__file__).resolve().parents[2] / "target/release/bandroot"


def bandroot(*arguments):
    """(what it prints, seconds)."""
    start = time.perf_counter()
    command = [str(BANDROOT), "calibrate", *map(str, arguments), "--json"]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    return json.loads(output), time.perf_counter() - start


def poisson(probability, steps, epsilon, delta):
    """(multiplier, seconds) of dp_accounting."""
    start = time.perf_counter()

    def event(multiplier):
        gaussian = dp_accounting.GaussianDpEvent(multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(probability, gaussian)
        return dp_accounting.SelfComposedDpEvent(sampled, steps)

    multiplier = dp_accounting.calibrate_dp_mechanism(
        pld.PLDAccountant, event, epsilon, delta, tol=1e-5
    )
    return multiplier, time.perf_counter() - start


def square_root_series(alpha, beta, bands):
    """Coefficients of ((1 - alpha x)(1 - beta x))^(-1/2)."""

    def factor(base):
        terms = [1.0]
        for j in range(1, bands):
            terms.append(terms[-1] * base * (j - 0.5) / j)
        return np.array(terms)

    return np.convolve(factor(alpha), factor(beta))[:bands]


def main():
    print("## Poisson, delta 1e-5\n")
    print("| probability | steps | epsilon | bandroot | s | dp_accounting | s | ratio |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    for probability, steps, epsilon in [(0.01, 1000, 8), (0.01, 1000, 2), (0.1, 100, 8), (0.02, 5000, 4)]:
        ours, seconds = bandroot(
            "--sampling", "poisson", "--probability", probability, "--steps", steps,
            "--epsilon", epsilon, "--delta", 1e-5,
        )
        theirs, their_seconds = poisson(probability, steps, epsilon, 1e-5)
        print(
            f"| {probability} | {steps} | {epsilon} | {ours['noise_multiplier']:.6f} | {seconds:.2f} "
            f"| {theirs:.6f} | {their_seconds:.1f} | {their_seconds / seconds:.0f} |"
        )

    print("\n## Balls-in-bins, ten epochs of BSR with 100 bands, epsilon 8, delta 1e-5\n")
    ours, seconds = bandroot(
        "--sampling", "balls-in-bins", "--method", "bsr", "--bands", 100, "--alpha", 0.999, "--beta", 0.9,
        "--steps", 1000, "--separation", 100, "--epsilon", 8, "--delta", 1e-5,
    )
    upper = max(ours["upper_remove"], ours["upper_add"])
    print(f"bandroot: noise {ours['noise_std']:.4f}, delta verified to be at most {upper:.3e}, {seconds:.1f} s")
    # Of the bound on delta the samples' own uncertainty is a few percent, as in the design of the estimator.
    base = 0.95e-5
    samples = delta_calculation.minimum_samples_to_calibrate(base, 1e-5)
    strategy = batch_selection.BallsInBinsSampling(iterations=1000, cycle_length=100)
    column = square_root_series(0.999, 0.9, 100)
    drawn = 1000
    start = time.perf_counter()
    sample_generation.generate_sample(strategy, ours["noise_std"], column, seed=0, num_samples=drawn)
    each = (time.perf_counter() - start) / drawn
    print(
        f"jax_privacy: {samples:.2e} samples for a bound 5 % above the mean, {1e6 * each:.0f} us each: "
        f"{samples * each:.0f} s, >= {samples * each / seconds:.0f} times as long"
    )


if __name__ == "__main__":
    main()
