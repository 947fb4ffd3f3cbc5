"""Noise multipliers of the Gaussian mechanism from Google's dp_accounting.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install dp-accounting==0.6.0
    /tmp/golden/bin/python scripts/golden/calibration.py > crates/dp-train/tests/golden/calibration.csv

Seconds. dp_accounting solves for log(delta) with brentq at an absolute tolerance of 1e-12 in sigma.
"""

from importlib.metadata import version

from dp_accounting import gaussian_mechanism

EPSILONS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 20, 25, 32,
            40, 50, 64, 80, 100]
DELTAS = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12]

print(f"# dp_accounting {version('dp-accounting')}, scipy {version('scipy')}, scripts/golden/calibration.py")
print("epsilon,delta,noise_multiplier")
for epsilon in EPSILONS:
    for delta in DELTAS:
        sigma = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
        print(f"{epsilon!r},{delta!r},{float(sigma)!r}")
