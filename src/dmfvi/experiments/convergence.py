"""Convergence on synthetic data: penalty, number of nodes, topology (the paper's appendix, first figure).

250 samples of N(5, 0.8) in 50 dimensions, 5 components, random starts. The data have no subspace: the prior switches
all components off, at every node, as it does in the pooled fit. A fourth panel has the paper's own form, ADMM on
moments, beside the natural one: both factorised and from the spectral start, since from a random one moments diverged.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dmfvi.consensus import make
from dmfvi.datasets.synthetic import make_gaussian
from dmfvi.engines.base import RoundRecord
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
from dmfvi.inference.federation import Federation
from dmfvi.inference.result import Inference
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.network import Network

N_SAMPLES, N_FEATURES, N_COMPONENTS = 250, 50, 5
#: the paper's stopping rule: relative change of the objective
PAPER_STOP = 1e-3
#: a bound this close to the pooled one, relatively, has arrived
ARRIVED = 1e-3
PENALTIES: tuple[float | str, ...] = ("auto", 1.0, 5.0, 10.0, 20.0, 50.0)
SIZES = (2, 5, 10, 20)
TOPOLOGIES = ("ring", "star", "complete", "chain")
#: ADMM on natural parameters, and on moments as the paper has it: its sweeps at most
FORMS = {"natural": "bregman-admm", "moments": "moments-admm"}
MOMENTS_ITERATIONS = 2500
#: rounds of the curves that are kept
CURVE = 100


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """Every setting with every start; settings change one at a time around ring 5."""
    settings = [("penalty", "ring", 5, penalty) for penalty in PENALTIES]
    settings += [("nodes", "ring", size, "auto") for size in SIZES]
    settings += [("topology", topology, 5, "auto") for topology in TOPOLOGIES]
    runs: list[dict[str, Any]] = [
        {"panel": panel, "topology": topology, "nodes": nodes, "penalty": penalty, "start": start}
        for panel, topology, nodes, penalty in settings
        for start in range(20 if full else 3)
    ]
    base = {"panel": "form", "topology": "ring", "nodes": 5, "penalty": "auto", "start": 0}
    return runs + [base | {"form": form} for form in FORMS]


def run(params: Params) -> dict[str, Any]:
    """Fit pooled and over the network from the same start; follow the bound."""
    data = make_gaussian(N_SAMPLES, N_FEATURES, seed=0)
    form = params.get("form")
    settings = {
        "init": "random" if form is None else "spectral",
        "covariance_type": "full" if form is None else "diag",
        "random_state": params["start"],
    }
    pooled = BayesianPCA(N_COMPONENTS, tol=1e-9, **settings)
    network = getattr(Network, params["topology"])(params["nodes"])
    rule = make(FORMS[form or "natural"], network, penalty=params["penalty"])
    model = BayesianPCA(
        N_COMPONENTS,
        network=Federation(network, consensus=rule),
        max_iter=MOMENTS_ITERATIONS,
        **settings,
    )
    swept: list[tuple[int, float]] = []
    arrived: list[int] = []

    def watch(record: RoundRecord, so_far: Inference) -> None:
        if not record.swept:
            return
        swept.append((record.round, record.objective))
        if not arrived and all(p.distance(pooled.posterior_) < 1e-6 for p in so_far.posteriors):
            arrived.append(record.round)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pooled.fit(data)
        model.fit(data, observer=watch)
    # the history's bound is in units of the data, the records' in standardised ones
    shift = model.history_["objective"][-1] - swept[-1][1]
    rounds = np.array([r for r, _ in swept])
    bounds = np.array([b for _, b in swept]) + shift
    changes = np.abs(np.diff(bounds)) / np.abs(bounds[1:])
    near = np.abs(bounds - pooled.lower_bound_) < ARRIVED * abs(pooled.lower_bound_)
    curve = np.interp(np.arange(1, CURVE + 1), rounds, bounds)
    return {
        "iterations_by_papers_rule": int(np.flatnonzero(changes < PAPER_STOP)[0]) + 2,
        "rounds_by_papers_rule": int(rounds[1:][changes < PAPER_STOP][0]),
        "rounds_to_pooled_bound": int(rounds[near][0]),
        "rounds_to_posterior_1e-6": arrived[0] if arrived else float("nan"),
        "rounds": model.n_rounds_,
        "converged": float(model.converged_),
        "distance": max(p.distance(pooled.posterior_) for p in model.node_posteriors_),
        "bound_gap": abs(model.lower_bound_ / pooled.lower_bound_ - 1.0),
        "curve": [float(v) for v in curve],
        "pooled_bound": pooled.lower_bound_,
    }


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Averages over starts; the worst distance to the pooled posterior."""
    figures: dict[str, float] = {}
    rows = []
    for (panel, label), group in _settings(outcomes):
        key = f"D-BPCA/{panel} {label}"
        means = {
            name: float(np.mean(values(group, name)))
            for name in (
                "iterations_by_papers_rule",
                "rounds_by_papers_rule",
                "rounds_to_pooled_bound",
                "rounds_to_posterior_1e-6",
                "rounds",
                "converged",
            )
        }
        worst = max(values(group, "distance"))
        figures |= {f"{key}/{name}": v for name, v in means.items() if np.isfinite(v)}
        figures[f"{key}/worst_distance_to_pooled"] = worst
        figures[f"{key}/worst_bound_gap"] = max(values(group, "bound_gap"))
        rows.append(
            [
                f"{panel} {label}",
                "< 100",
                f"{means['iterations_by_papers_rule']:.0f}",
                f"{means['rounds_by_papers_rule']:.0f}",
                f"{means['rounds_to_pooled_bound']:.0f}",
                _rounds(means["rounds_to_posterior_1e-6"]),
                f"{worst:.1e}",
                f"{means['converged']:.0%}",
            ]
        )
    columns = ("setting", "paper", "sweeps", "rounds", "bound", "1e-6", "worst node", "ok")
    title = (
        "Convergence. Paper: iterations by its rule; sweeps, rounds: ours by its rule; "
        "bound: rounds to 0.1 % of the pooled bound; 1e-6: rounds to the pooled posterior"
    )
    return Summary(figures, [ResultTable(title, columns, rows)])


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """The bound against rounds in four panels."""
    axes = figure.subplots(1, 4, sharey=True)
    titles = {
        "penalty": "Penalty",
        "nodes": "Number of nodes (ring)",
        "topology": "Topology (5 nodes)",
        "form": "Form (ring of 5)",
    }
    for ax, (panel, title) in zip(axes, titles.items(), strict=True):
        for (_, label), group in _settings(select(outcomes, panel=panel)):
            mean = np.mean([o.found["curve"] for o in group], axis=0)
            ax.plot(np.arange(1, len(mean) + 1), mean, label=label, lw=1.4)
        pooled = np.mean(values(select(outcomes, panel=panel), "pooled_bound"))
        ax.axhline(pooled, color="0.4", ls=":", lw=1, label="pooled")
        ax.set(title=title, xlabel="message round", xscale="log")
        ax.legend(frameon=False, fontsize=7)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("evidence lower bound (nats, mean over starts)")


def _rounds(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "not reached"


def _settings(outcomes: Sequence[Outcome]) -> list[tuple[tuple[str, str], list[Outcome]]]:
    return [
        ((panel, f"{value:g}" if isinstance(value, float) else str(value)), group)
        for panel in distinct(outcomes, "panel")
        for value in distinct(select(outcomes, panel=panel), panel)
        if (group := select(outcomes, panel=panel, **{panel: value}))
    ]


EXPERIMENT = Experiment(
    "convergence",
    "Convergence: penalty, number of nodes, topology",
    cases,
    run,
    summarise,
    draw,
    size=(15.0, 4.2),
)
