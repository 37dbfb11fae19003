"""ParameterADMM: consensus ADMM on point estimates with a Euclidean penalty (Yoon & Pavlovic 2012).

Each node minimises its own loss plus 2 <dual, theta> + penalty to the midpoints of its edges; how, the model
says. ``dual_i += (eta/2) sum_j (theta_i - theta_j)``, right-hand sides use the previous round. For maximum
likelihood baselines: it agrees on values, not on posteriors, and needs every message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from dmfvi.consensus.base import ConsensusRule, Incoming, LocalView, Progress
from dmfvi.linalg import FloatArray, relative_norm
from dmfvi.tags import stored_as

#: solve(statistics, own, dual, pull, eta, degree): the node's new parameters; pull and eta per coordinate
Solver = Callable[[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, int], FloatArray]


@stored_as("parameter-admm-state")
class ParameterState(NamedTuple):
    """One node's parameters and dual."""

    view: LocalView
    statistics: FloatArray
    own: FloatArray
    dual: FloatArray
    round: int = 0


class ParameterADMM(ConsensusRule):
    """Agree on parameters that a model's ``solve`` computes from statistics, dual and neighbours.

    ``penalty`` is eta, one number in the data's units, or "auto": what it means for each coordinate, and the node's
    own step, the model says (``eta``, ``solve``).

    Parameters
    ----------
    penalty : float, array or "auto"
        The weight eta, in the data's units.
    solve : callable or None
        The step of a node; None: the model's.
    initial : array or None
        Parameters at the start.
    """

    name = "parameter-admm"

    def __init__(
        self,
        penalty: float | FloatArray | Literal["auto"] = "auto",
        solve: Solver | None = None,
        initial: FloatArray | None = None,
    ) -> None:
        if (isinstance(penalty, str) and penalty != "auto") or not np.all(_numbers(penalty) > 0):
            raise ValueError(f"penalty must be 'auto' or positive, received {penalty!r}")
        self.given = penalty
        self.penalty = _numbers(penalty)
        self._solve, self._initial = solve, initial

    @property
    def settings(self) -> dict[str, Any]:
        return {"penalty": self.given, "solve": self._solve, "initial": self._initial}

    def for_model(self, model: Any, belief: Any) -> ParameterADMM:
        if self._solve is not None:
            return self
        if not hasattr(model, "solve"):
            raise ValueError(
                f"consensus 'parameter-admm' agrees on point estimates, received {type(model).__name__}: "
                "it is for PPCA, use consensus='bregman-admm'"
            )
        return ParameterADMM(model.eta(self.given, belief), model.solve, belief.pack())

    @property
    def solve(self) -> Solver:
        """The node's own step."""
        assert self._solve is not None, "for_model names the solver"
        return self._solve

    @property
    def initial(self) -> FloatArray:
        """Parameters to begin with."""
        assert self._initial is not None, "for_model names the first parameters"
        return self._initial

    def start(self, view: LocalView, target: FloatArray) -> ParameterState:
        return ParameterState(view, target, self.initial, np.zeros_like(self.initial))

    def advance(
        self, state: ParameterState, inbox: Mapping[int, Incoming]
    ) -> tuple[ParameterState, Progress]:
        degree = state.view.degree
        missing = [j for j in state.view.neighbours if j not in inbox]
        if missing:
            raise RuntimeError(
                f"parameter-admm at node {state.view.node} misses messages from {missing}: "
                "this rule needs reliable links"
            )
        others = [inbox[j].payload for j in state.view.neighbours]
        gap = degree * state.own - sum(others, np.zeros_like(state.own))
        dual = state.dual + 0.5 * self.penalty * gap
        pull = 2.0 * degree * state.own - gap  # sum_j (theta_i + theta_j)
        own = self.solve(state.statistics, state.own, dual, pull, self.penalty, degree)
        disagreement = relative_norm(gap, state.own)
        return (
            state._replace(own=own, dual=dual, round=state.round + 1),
            Progress(ready=True, disagreement=disagreement),
        )

    def retarget(self, state: ParameterState, target: FloatArray) -> ParameterState:
        return state._replace(statistics=target)

    def payload(self, state: ParameterState) -> FloatArray:
        return state.own

    def estimate(self, state: ParameterState) -> FloatArray:
        return state.own

    def rounds_per_sweep(self, view: LocalView) -> int:
        return 1


def _numbers(penalty: float | FloatArray | str) -> FloatArray:
    return np.ones(1) if isinstance(penalty, str) else np.asarray(penalty, dtype=np.float64)
