"""Expected errors of optimised strategies and sensitivities of BISR from jax_privacy.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install jax-privacy==2.0.0
    /tmp/golden/bin/python scripts/golden/factorizations.py > crates/mf-core/tests/golden/factorizations.csv

Some minutes. All are for the prefix sum and n = k b. jax_privacy's loss is a mean squared error for noise of
the size of the sensitivity, so its root is our expected error; a banded strategy with unit columns and p <= b
has the sensitivity sqrt(k).
"""

from importlib.metadata import version

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

print(f"# jax_privacy {version('jax-privacy')}, jax {version('jax')}, scripts/golden/factorizations.py")
print("quantity,n,b,k,size,value")


def row(quantity, n, b, k, size, value):
    print(f"{quantity},{n},{b},{k},{size},{float(value)!r}", flush=True)


def rmse(n, b, k, strategy):
    squared = toeplitz.minsep_sensitivity_squared(strategy, b, k, n, skip_checks=True)
    errors = toeplitz.per_query_error(strategy_coef=strategy, n=n)
    return jnp.sqrt(squared * jnp.mean(errors))


for n, b, k in [(2000, 100, 20), (512, 64, 8)]:
    for bands in [2, 4, 16, 64, 100]:
        if bands <= b:
            coef = toeplitz.optimize_banded_toeplitz(n, bands, max_optimizer_steps=1000)
            row("toeplitz_error", n, b, k, bands, rmse(n, b, k, coef))
    noising = toeplitz.optimal_max_error_noising_coefs(n)
    for bands in [2, 4, 16, 64]:
        strategy = toeplitz.inverse_coef(jnp.pad(noising[:bands], (0, n - bands)), n)
        squared = toeplitz.minsep_sensitivity_squared(strategy, b, k, n)
        row("bisr_sensitivity", n, b, k, bands, jnp.sqrt(squared))
        row("bisr_error", n, b, k, bands, rmse(n, b, k, strategy))
    for buffers in [1, 2, 3]:
        blt = buffered_toeplitz.optimize(
            n=n, min_sep=b, max_participations=k, error="mean", min_buffers=buffers, max_buffers=buffers)
        row("blt_error", n, b, k, buffers, rmse(n, b, k, blt.toeplitz_coefs(n)))
