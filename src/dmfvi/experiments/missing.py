"""Reconstruction against the part that is missing, at random and not (the paper's appendix, figures 4a and 4b).

The paper does not name the data. "gaussian" are those of its convergence experiment, N(5, 0.8) without any subspace,
where a model should learn to add nothing; "low rank" has five true components. 250 samples, 50 dimensions, 5
components fitted, 5 nodes on a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.datasets.masks import mask_at_random, mask_large_values
from dmfvi.datasets.synthetic import make_gaussian, make_low_rank
from dmfvi.experiments.base import (
    Experiment,
    Outcome,
    Params,
    ResultTable,
    Summary,
    distinct,
    select,
    values,
)
from dmfvi.experiments.report import colour_of
from dmfvi.experiments.systems import estimator, fit_quietly
from dmfvi.network import Network

SYSTEM_NAMES = ("PPCA", "BPCA", "D-PPCA", "D-BPCA")
N_SAMPLES, N_FEATURES, RANK, NOISE = 250, 50, 5, 1.0
QUICK_RATES, FULL_RATES = (0.1, 0.4, 0.7), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """Every mechanism, rate, run and system."""
    return [
        {"source": source, "kind": kind, "rate": rate, "run": run, "system": system}
        for source in ("gaussian", "low rank")
        for kind in ("MAR", "MNAR")
        for rate in (FULL_RATES if full else QUICK_RATES)
        for run in range(20 if full else 1)
        for system in SYSTEM_NAMES
    ]


def run(params: Params) -> dict[str, Any]:
    """Hide entries, fit, compare what is imputed with what was hidden."""
    seed = int(params["run"])
    if params["source"] == "gaussian":
        truth = make_gaussian(N_SAMPLES, N_FEATURES, seed=seed)
    else:
        truth = make_low_rank(N_SAMPLES, N_FEATURES, RANK, noise=NOISE, seed=seed).data
    hide = mask_at_random if params["kind"] == "MAR" else mask_large_values
    data = hide(truth, params["rate"], seed=seed)
    network = Network.ring(5)
    model = estimator(params["system"], RANK, network, seed, fit_mean=True)
    shards = np.array_split(data, network.n_nodes)
    fit_quietly(model, shards)
    gone = np.isnan(data)
    worst = 0.0
    for node in range(len(model.node_posteriors_)):
        error = (model.at_node(node).impute(data) - truth)[gone]
        worst = max(worst, float(np.sqrt(np.mean(error**2))))
    low, high = model.impute_interval(data, level=0.9)
    inside = (low <= truth) & (truth <= high)
    return {
        "rmse": worst,
        "coverage": float(inside[gone].mean()),
        "rounds": int(model.n_iter_),
        "converged": float(model.converged_),
    }


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Mean RMSE of every system at every rate."""
    figures: dict[str, float] = {}
    tables = []
    for source, kind in _panels(outcomes):
        rows = []
        for rate in distinct(outcomes, "rate"):
            cells = [f"{rate:.0%}"]
            for system in SYSTEM_NAMES:
                group = select(outcomes, source=source, kind=kind, rate=rate, system=system)
                mean = float(np.mean(values(group, "rmse")))
                coverage = float(np.mean(values(group, "coverage")))
                key = f"{system}/{source}, {kind} {rate:g}"
                figures[f"{key}/rmse"] = mean
                figures[f"{key}/coverage_90"] = coverage
                cells.append(f"{mean:.4f} ({coverage:.0%})")
            rows.append(cells)
        title = f"{source}, {kind}: RMSE of hidden entries, worst node (cover of 90 % intervals)"
        tables.append(ResultTable(title, ("missing", *SYSTEM_NAMES), rows))
    return Summary(figures, tables)


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """RMSE against the missing rate, one panel for each mechanism."""
    axes = figure.subplots(2, 2, sharey="row")
    for ax, (source, kind) in zip(axes.ravel(), _panels(outcomes), strict=True):
        for style, system in zip(("o-", "s-", "^--", "x--"), SYSTEM_NAMES, strict=True):
            rates = distinct(outcomes, "rate")
            group = select(outcomes, source=source, kind=kind, system=system)
            means = [np.mean(values(select(group, rate=r), "rmse")) for r in rates]
            ax.plot(
                [100 * r for r in rates],
                means,
                style,
                color=colour_of(system),
                label=system,
                ms=5,
                lw=1.2,
            )
        ax.set(
            title=f"{source}, {kind}",
            xlabel="missing (%)",
            ylabel="RMSE of hidden entries (data units)",
        )
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)


def _panels(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    return [(s, k) for s in distinct(outcomes, "source") for k in distinct(outcomes, "kind")]


EXPERIMENT = Experiment(
    "missing",
    "Reconstruction with missing entries",
    cases,
    run,
    summarise,
    draw,
    size=(10.0, 8.0),
)
