"""The demonstration: five cameras on a ring learn one model, and no camera sees another's data."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.engines.base import RoundRecord
from dmfvi.inference.result import Inference
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.network import Network
from dmfvi.report.figures import fit_figure

LEVEL = 0.9


class NodeResult(NamedTuple):
    """One line of the demo's table."""

    node: int
    samples: int
    missing: float  # part of its entries
    distance: float  # to the pooled posterior
    rmse: float  # of its imputed entries
    coverage: float  # of its intervals


class DemoResult(NamedTuple):
    """What the demo shows."""

    nodes: list[NodeResult]
    rounds: int
    start_rounds: int
    rounds_to_1e6: int | None
    disagreement: float
    kilobytes: float
    bound_gap: float
    coverage: float
    figure: Path


def run_demo(out: Path, *, seed: int = 0, verbose: int = 1) -> DemoResult:
    """Fit pooled and decentralized, compare, draw."""
    sizes = [60, 90, 120, 80, 100]
    truth = make_low_rank(sum(sizes), 40, 5, noise=0.5, seed=seed).data
    observed = mask_at_random(truth, 0.3, seed=seed + 1)
    cuts = np.cumsum(sizes)[:-1]
    shards, complete = np.split(observed, cuts), np.split(truth, cuts)
    pooled = BayesianPCA(5, random_state=seed, verbose=verbose).fit(observed)
    distances: list[tuple[int, float]] = []

    def observe(record: RoundRecord, so_far: Inference) -> None:
        if record.swept:
            worst = max(p.distance(pooled.posterior_) for p in so_far.posteriors)
            distances.append((record.round, worst))

    network = Network.ring(len(sizes))
    cameras = BayesianPCA(5, network=network, random_state=seed, verbose=verbose)
    cameras.fit(shards, observer=observe)
    nodes, parts = [], []
    for i, (shard, full) in enumerate(zip(shards, complete, strict=True)):
        posterior = cameras.node_posteriors_[i]
        mean, variance = posterior.predict(shard)
        held = np.isnan(shard)
        part = (full[held], mean[held], np.sqrt(variance[held]))
        parts.append(part)
        nodes.append(
            NodeResult(
                i,
                len(shard),
                float(held.mean()),
                posterior.distance(pooled.posterior_),
                float(np.sqrt(np.mean((part[0] - part[1]) ** 2))),
                _coverage(*part),
            )
        )
    coverage = _coverage(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    history = cameras.history_
    figure = fit_figure(
        out / "demo.png",
        network,
        distances,
        history["disagreement"],
        *parts[0],
        level=LEVEL,
        coverage=coverage,
    )
    return DemoResult(
        nodes,
        cameras.n_rounds_,
        cameras.n_start_rounds_,
        next((r for r, d in distances if d < 1e-6), None),
        float(history["disagreement"][-1]),
        float(history["bytes_sent"].sum() + cameras.n_start_bytes_) / 1024,
        abs(cameras.lower_bound_ / pooled.lower_bound_ - 1.0),
        coverage,
        figure,
    )


def _coverage(truth: FloatArray, mean: FloatArray, deviation: FloatArray) -> float:
    return float(np.mean(np.abs(truth - mean) <= norm.ppf(0.5 + 0.5 * LEVEL) * deviation))
