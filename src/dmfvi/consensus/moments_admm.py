"""MomentsADMM: the paper's appendix form, corrected (docs/mathematics.md).

Means and variances of scalar Gaussians q = N(m, v) are constrained apart, with KL(rho || q_i) in the
node step and KL(q_i || rho) in the edge step. With the local objective a v/2 + a m^2/2 - b m - log(v)/2,
where (a, b) is the node's target (precision, mean times precision), d its degree, penalty e:

    m_i    (a + e d / v) m = b - sum_j gamma_ij + (e / v) sum_j rho_ij
    v_i    (a + 2 sum_j beta_ij) v^2 + (e d - 1) v - e sum_j (phi_ij + (m_i - rho_ij)^2) = 0
    rho_ij = (m_i + m_j)/2
    phi_ij  -(beta_ij + beta_ji) phi^2 + e phi - (e/2)(v_i + v_j + (m_i - rho)^2 + (m_j - rho)^2) = 0
    gamma_ij += e (m_i - rho_ij)    beta_ij += e (v_i - phi_ij)

gamma_ij = -gamma_ji throughout, since rho is the midpoint. Both ends of an edge keep both betas, so a
message is (m, v) only; that needs every message. Slower than the natural form and Gaussian
only; kept because it is what the paper says. Entries of the vector that are not Gaussian are agreed on
by Bregman ADMM in natural coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dmfvi.consensus.base import ConsensusRule, Incoming, Progress
from dmfvi.consensus.mixing import SpectralView
from dmfvi.linalg import FloatArray, relative_norm
from dmfvi.network import Network
from dmfvi.tags import stored_as

#: stable on every graph tried when ``unit`` is about three times the posterior's deviation
DEFAULT_PENALTY = 5.0
#: rounds between sweeps: the form is so slow that sweeps may as well go on meanwhile
DEFAULT_ROUNDS = 2
#: a variance changes by at most this factor in a round
VARIANCE_STEP = 2.0


@stored_as("moments-admm-state")
@dataclass(frozen=True)
class MomentsState:
    """One node's means and variances, its duals, and the natural part."""

    view: SpectralView
    target: FloatArray
    mean: FloatArray
    variance: FloatArray
    rest: FloatArray  # lambda of the entries that are not Gaussian
    rest_dual: FloatArray
    gamma: Mapping[int, FloatArray] = field(default_factory=dict)
    beta: Mapping[int, FloatArray] = field(default_factory=dict)
    beta_theirs: Mapping[int, FloatArray] = field(default_factory=dict)
    round: int = 0
    phase: int = 0


class MomentsADMM(ConsensusRule):
    """The paper's form for ``n_scalars`` Gaussians: the target starts with their a, then their b.

    How many there are, and their unit, a model says (``Model.gaussian_scalars``).

    The dual steps e (m - rho), e (v - phi) have the units of m and v, so the form is not free of units:
    it is slow where variances are far below one and unstable where they are above. ``unit``, the same at
    all nodes, is the deviation that counts as one: about three times the posterior's is best.

    Parameters
    ----------
    penalty : float or "auto"
        Weight of the disagreement with neighbours.
    rounds : int or "auto"
        Rounds between two sweeps.
    n_scalars : int or None
        Number of Gaussians; None: the model says it.
    unit : float
        The deviation that counts as one.
    """

    name = "moments-admm"

    def __init__(
        self,
        penalty: float | Literal["auto"] = "auto",
        rounds: int | Literal["auto"] = "auto",
        n_scalars: int | None = None,
        unit: float = 1.0,
    ) -> None:
        if penalty != "auto" and not float(penalty) > 0:
            raise ValueError(f"penalty must be 'auto' or a positive number, received {penalty!r}")
        self.n_scalars = n_scalars
        self.penalty = DEFAULT_PENALTY if penalty == "auto" else float(penalty)
        self.rounds = rounds
        self.unit = unit

    def for_model(self, model: Any, belief: Any) -> MomentsADMM:
        if self.n_scalars is not None:
            return self
        scalars = model.gaussian_scalars(belief)
        if scalars is None:
            raise ValueError(
                f"consensus 'moments-admm' works on scalar Gaussians, received {type(model).__name__}: "
                "use BayesianPCA with covariance_type='diag', or consensus='bregman-admm'"
            )
        return MomentsADMM(self.penalty, self.rounds, *scalars)

    def local_view(self, network: Network, node: int) -> SpectralView:
        return SpectralView.of(network, node)

    def start(self, view: SpectralView, target: FloatArray) -> MomentsState:
        a, b, rest = self._split(target)
        return MomentsState(view, target, b / a, 1.0 / a, rest, np.zeros_like(rest))

    def advance(
        self, state: MomentsState, inbox: Mapping[int, Incoming]
    ) -> tuple[MomentsState, Progress]:
        n, e = self._size, self.penalty
        a, b, rest_target = self._split(state.target)
        m, v, degree = state.mean, state.variance, state.view.degree
        gamma, beta, beta_theirs = dict(state.gamma), dict(state.beta), dict(state.beta_theirs)
        zero = np.zeros(n)
        rho_sum, phi_sum, gamma_sum, beta_sum = zero, zero, zero, zero
        rest_gap = np.zeros_like(state.rest)
        mean_gap = np.zeros(n)
        for j in state.view.neighbours:
            if j not in inbox or inbox[j].round != state.round:
                raise RuntimeError(
                    f"moments-admm at node {state.view.node} misses a message from node {j}: "
                    "this rule needs reliable links, use consensus='bregman-admm'"
                )
            theirs = inbox[j].payload
            m_j, v_j = theirs[:n], theirs[n : 2 * n]
            rho = 0.5 * (m + m_j)
            mine, other = beta.get(j, zero), beta_theirs.get(j, zero)
            phi = _edge_variance(mine + other, e, v + v_j + 0.5 * (m - m_j) ** 2)
            gamma[j] = gamma.get(j, zero) + e * (m - rho)
            beta[j], beta_theirs[j] = mine + e * (v - phi), other + e * (v_j - phi)
            rho_sum = rho_sum + rho
            gamma_sum = gamma_sum + gamma[j]
            beta_sum = beta_sum + beta[j]
            phi_sum = phi_sum + phi + (m - rho) ** 2
            mean_gap = mean_gap + m - m_j
            rest_gap = rest_gap + state.rest - theirs[2 * n :]
        new_m = (b - gamma_sum + e / v * rho_sum) / (a + e * degree / v)
        new_v = _positive_root(a + 2.0 * beta_sum, e * degree - 1.0, e * phi_sum)
        # the quadratic has no safe root while the duals overshoot: go part of the way
        new_v = np.clip(new_v, v / VARIANCE_STEP, v * VARIANCE_STEP)
        rest_dual = state.rest_dual + 0.5 * e * rest_gap
        anchor = degree * state.rest - 0.5 * rest_gap  # sum of edge midpoints
        new_rest = (rest_target - rest_dual + e * anchor) / (1.0 + e * degree)
        if not (np.isfinite(new_m).all() and np.isfinite(new_v).all()):
            raise FloatingPointError(
                f"moments-admm diverged at node {state.view.node} in round {state.round + 1}: "
                f"lower the penalty (now {e:g}) or use consensus='bregman-admm'"
            )
        lowest = state.view.lowest
        gap = max(relative_norm(mean_gap, m), relative_norm(rest_gap, state.rest)) / lowest
        state = replace(
            state,
            mean=new_m,
            variance=new_v,
            rest=new_rest,
            rest_dual=rest_dual,
            gamma=gamma,
            beta=beta,
            beta_theirs=beta_theirs,
            round=state.round + 1,
            phase=state.phase + 1,
        )
        return state, Progress(state.phase >= self.rounds_per_sweep(state.view), gap)

    def retarget(self, state: MomentsState, target: FloatArray) -> MomentsState:
        return replace(state, target=target, phase=0)

    def payload(self, state: MomentsState) -> FloatArray:
        return np.concatenate([state.mean, state.variance, state.rest])

    def estimate(self, state: MomentsState) -> FloatArray:
        precision = 1.0 / state.variance
        return np.concatenate(
            [precision / self.unit**2, state.mean * precision / self.unit, state.rest]
        )

    def rounds_per_sweep(self, view: SpectralView) -> int:
        return DEFAULT_ROUNDS if self.rounds == "auto" else self.rounds

    @property
    def _size(self) -> int:
        assert self.n_scalars is not None, "for_model says how many scalars there are"
        return self.n_scalars

    def _split(self, vector: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        n = self._size
        return vector[:n] * self.unit**2, vector[n : 2 * n] * self.unit, vector[2 * n :]


def _positive_root(a: FloatArray, b: FloatArray | float, c: FloatArray) -> FloatArray:
    """x > 0 with a x^2 + b x - c = 0, stable for small a; at the vertex where none exists."""
    discriminant = np.maximum(b * b + 4.0 * a * c, 0.0)
    return np.asarray(2.0 * c / np.maximum(b + np.sqrt(discriminant), np.finfo(float).tiny))


def _edge_variance(beta_sum: FloatArray, e: float, spread: FloatArray) -> FloatArray:
    """phi of one edge."""
    return _positive_root(-beta_sum, e, 0.5 * e * spread)
