"""Inference: the result of a fit, one posterior per node, and how the run went."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dmfvi.engines.base import NodeRound, RoundRecord, Run
from dmfvi.inference.model import Model
from dmfvi.linalg import FloatArray

#: columns of a history
HISTORY = ("round", "objective", "change", "disagreement", "bytes_sent", "limited_steps")
#: rounds at most that are kept node by node
MOST_ROUNDS_BY_NODE = 150


@dataclass(frozen=True)
class Inference:
    """One posterior per node of this process, and how the run went.

    Parameters
    ----------
    model : Model
        The model that was fitted.
    beliefs : list
        One for each node of this process.
    run : Run
        What the engine gave back: records of rounds and whether the nodes converged.
    start_rounds, start_bytes : int
        Message rounds and bytes of the start.
    consensus : dict
        How the nodes agreed: rule, transport, number of nodes.
    other_bounds : tuple of float
        Bounds of other starts that converged (``n_init``), the same at all nodes.
    """

    model: Model
    beliefs: list[Any]  # as the model has them
    run: Run
    start_rounds: int = 0
    start_bytes: int = 0
    consensus: dict[str, Any] = field(default_factory=dict)  # what the rule says of itself
    other_bounds: tuple[float, ...] = ()  # of other starts that converged, agreed by all nodes

    @cached_property
    def posteriors(self) -> list[Any]:
        """Every node's posterior."""
        distinct = {id(belief): belief for belief in self.beliefs}
        made = dict(zip(distinct, self.model.posteriors(list(distinct.values())), strict=True))
        return [made[id(belief)] for belief in self.beliefs]

    @property
    def posterior(self) -> Any:
        """Node 0's: every node's is the same to within ``tol``."""
        return self.posteriors[0]

    @property
    def lower_bound(self) -> float:
        """Evidence lower bound with all constants, agreed by all nodes."""
        return self.run.history[-1].objective

    @property
    def converged(self) -> bool:
        """Whether the nodes stopped by themselves."""
        return self.run.converged

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = {
            "model": type(self.model).__name__,
            "nodes": len(self.beliefs),
            "converged": "yes" if self.converged else "NOT converged",
            "iterations": self.n_iter,
            "message rounds": self.n_rounds,
            "evidence lower bound": f"{self.lower_bound:.8g}",
            "posterior": repr(self.posterior),
        }
        rows = (f"<tr><th>{name}</th><td>{escape(str(v))}</td></tr>" for name, v in facts.items())
        return f"<table>{''.join(rows)}</table>"

    @property
    def n_rounds(self) -> int:
        """Message rounds after the start."""
        return self.run.n_rounds

    @property
    def n_iter(self) -> int:
        """Sweeps of the node that has made most of them."""
        return self.run.n_sweeps

    @property
    def history(self) -> dict[str, FloatArray]:
        """One entry per round of objective, change, disagreement, bytes sent and limited steps.

        With exact sums also ``expected_bytes``, those of the cost model that chose the transport.
        """
        found = {name: np.array([getattr(r, name) for r in self.run.history]) for name in HISTORY}
        price = self.consensus.get("cost", {}).get(self.consensus.get("transport"))
        if price is not None:
            share = len(self.beliefs) / self.consensus["nodes"]  # of the nodes in this process
            sent = share * price["bytes"] / max(price["rounds"], 1.0)
            found["expected_bytes"] = np.full(len(self.run.history), sent)
        return found

    @property
    def node_history(self) -> dict[str, FloatArray]:
        """Rounds, evenly chosen, and for each of them and each node change, disagreement and share of the sum known.

        Empty where this process runs one node, or very many.
        """
        recorded = [r for r in self.run.history if r.nodes]
        if not recorded:
            return {}
        positions = np.linspace(0, len(recorded) - 1, min(len(recorded), MOST_ROUNDS_BY_NODE))
        chosen = [recorded[position] for position in np.unique(positions.astype(int))]
        values = np.array([r.nodes for r in chosen], dtype=np.float32)
        parts = {name: values[:, :, k] for k, name in enumerate(NodeRound._fields)}
        return {"round": np.array([r.round for r in chosen]), **parts}

    def spread(self) -> float:
        """Largest relative distance of a node's posterior from node 0's."""
        return max(float(q.distance(self.posterior)) for q in self.posteriors)


#: called after every round with the record and the inference so far; returning True ends the run
InferenceObserver = Callable[[RoundRecord, Inference], bool | None]


def warn_unless_converged(run: Run, tol: float | None, stacklevel: int) -> None:
    """Warn, at the caller's line, how far a run has come and what to do."""
    if run.converged:
        return
    goal = f"below tol/10 = {0.1 * tol:.1e}" if tol is not None else "small"
    last, limited = run.history[-1], sum(record.limited_steps for record in run.history)
    warnings.warn(
        f"not converged after {run.n_sweeps} iterations ({last.round} message rounds): relative change {last.change:.2e}, "
        f"disagreement {last.disagreement:.2e}, {limited} limited steps; nodes stop when the error they "
        f"estimate from both, and from how slowly changes shrink, is {goal}: "
        "raise max_iter or loosen tol",
        ConvergenceWarning,
        stacklevel=stacklevel + 1,
    )
