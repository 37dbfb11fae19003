"""Seconds per pooled iteration, 5000 x 200 with 10 components: ours, plain products, BayesPy."""

from __future__ import annotations

import time
import warnings

import numpy as np

from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.shard import CompleteShard, MaskedShard
from dmfvi.models.pca.statistics import Layout

N, D, M = 5000, 200, 10
REPEATS = 15


def median_seconds(action) -> float:
    """Median wall time of REPEATS runs after one that is not counted."""
    action()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def our_sweep(data: np.ndarray):
    """One pooled iteration: local step and absorb, parameter expansion included."""
    complete = not np.isnan(data).any()
    model = BayesianPcaModel(Layout(D, M + 1, complete), M)
    shard = CompleteShard.of(data, True) if complete else MaskedShard.of(data)
    belief = model.begin(np.random.default_rng(0).normal(size=(D, M)), 1.0)

    def sweep() -> None:
        nonlocal belief
        own = model.local_step(shard, belief)
        belief = model.absorb(own, own, belief).belief

    return sweep


def products(data: np.ndarray):
    """X W and X'Z: what an iteration over all samples cannot avoid."""
    rng = np.random.default_rng(0)
    weights, latent = rng.normal(size=(D, M)), rng.normal(size=(N, M))
    return lambda: (data @ weights, data.T @ latent)


def masked_products(data: np.ndarray):
    """With missing entries also mask x packed second moments, both ways."""
    rng = np.random.default_rng(0)
    filled, mask = np.nan_to_num(data), np.isfinite(data).astype(float)
    weights, latent = rng.normal(size=(D, M + 1)), rng.normal(size=(N, M + 1))
    by_feature, by_sample = (
        rng.normal(size=(D, M * (M + 1) // 2)),
        rng.normal(size=(N, (M + 1) * (M + 2) // 2)),
    )
    return lambda: (filled @ weights, filled.T @ latent, mask @ by_feature, mask.T @ by_sample)


def bayespy_seconds(data: np.ndarray, iterations: int = 6) -> float | None:
    """BayesPy's PCA with rotations, seconds per iteration; None where it is not installed."""
    try:
        from bayespy.inference import VB
        from bayespy.inference.vmp import transformations
        from bayespy.nodes import Gamma, GaussianARD, SumMultiply
    except ImportError as error:
        print(f"BayesPy is not usable here ({error})")
        return None
    x = GaussianARD(0, 1, shape=(M,), plates=(1, N))
    alpha = Gamma(1e-3, 1e-3, plates=(M,))
    w = GaussianARD(0, alpha, shape=(M,), plates=(D, 1))
    tau = Gamma(1e-3, 1e-3)
    y = GaussianARD(SumMultiply("i,i", w, x), tau)
    y.observe(np.nan_to_num(data).T, mask=np.isfinite(data).T)
    w.initialize_from_random()
    inference = VB(y, x, w, alpha, tau, autosave_filename=None)
    rotate = transformations.RotationOptimizer(
        transformations.RotateGaussianARD(x), transformations.RotateGaussianARD(w, alpha), M
    )
    inference.set_callback(rotate.rotate)
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inference.update(repeat=1, verbose=False, tol=None)
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def main() -> None:
    """Print seconds and ratios of one run."""
    data = make_low_rank(N, D, M, noise=0.5, seed=0).data
    data -= data.mean(0)
    for name, x, floor in (
        ("complete", data, products),
        ("30 % missing", mask_at_random(data, 0.3), masked_products),
    ):
        ours, least = median_seconds(our_sweep(x)), median_seconds(floor(x))
        print(
            f"{name}: ours {1e3 * ours:.2f} ms an iteration, products alone {1e3 * least:.2f} ms: ratio {ours / least:.2f}"
        )
        peer = bayespy_seconds(x)
        if peer is not None:
            print(
                f"{name}: BayesPy with rotations {1e3 * peer:.0f} ms: {peer / ours:.0f} times ours"
            )


if __name__ == "__main__":
    main()
