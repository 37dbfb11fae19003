"""Bregman ADMM in natural coordinates: the rule of the paper.

Node i's part of the objective, as a function of the mean parameters mu, is
V F_i(mu) = -<t_i, mu> + A*(mu). With KL penalties and the dual taken in natural coordinates every
step is closed-form for every exponential family (docs/mathematics.md):

    edge-anchored    lambda_i <- (t_i - p_i + c sum_j rho_ij) / (1 + c d_i),  rho_ij = (lambda_i + lambda_j)/2
    self-anchored    lambda_i <- (t_i - p_i + (g - 1) lambda_i) / g

and p_i = sum_j (S_i - S_j), with S_i <- S_i + s lambda_i . The first penalises
KL(q_i || edge mean), the second KL(q_i || own last belief), as generalised Bregman ADMM allows.

``penalty="auto"`` runs the self-anchored form with weights g_m and dual steps s_m that change
from round to round so that the network's slowest components are damped as fast as any method of
that many exchanges can (see ``mixing``). That is fast but needs every message. At the first
late message the nodes inform each other and go over to the edge-anchored form, which
only needs messages to arrive eventually: a message (round, lambda_j, S_j) supersedes all earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from dmfvi.consensus.base import ConsensusRule, Incoming, Progress
from dmfvi.consensus.mixing import (
    Mixing,
    SpectralView,
    amplification,
    design_mixing,
    stable_damping,
)
from dmfvi.linalg import FloatArray, relative_norm
from dmfvi.network import Network
from dmfvi.tags import stored_as

#: the node keeps its own sums this many rounds back, to pair them with late messages
HISTORY = 48
#: consensus error left per sweep in the edge-anchored form
EDGE_DAMPING = 0.15
#: disagreement that rounding leaves after a sweep of the exact schedule
EXACT_ROUNDING = 1e-10
#: weight of the newest observation in the running mean of staleness
STALENESS_MEMORY = 0.05
#: a neighbour silent for longer is away, not late: it must not slow the others down
STALENESS_CAP = 8
#: the agreed staleness is raised past this excess, and lowered (by node 0) below this part of it
RAISE_ABOVE, LOWER_BELOW, LOWER_AFTER = 1.5, 0.25, 60
#: per round, what a node remembers of the worst staleness that it has received
PEAK_DECAY = 0.95
LOWERING_NODE = 0
#: an agreed staleness beyond this is no honest one
MOST_LATE = 1e6
#: rounds of a sweep at most: the sums S_i grow with every round, and the digits that they lose come back divided by l_2
MOST_ROUNDS = 64
#: rounding of a message as a part of the disagreement between nodes, and what a round makes of that part: errors that
#: shrink whatever happens cannot keep the disagreement up that allows them
ERROR_SHARE, ERROR_SHRINKING = 0.01, 0.98
HEADER = 3  # agreement version, agreed staleness, worst staleness received


@stored_as("staleness")
@dataclass(frozen=True)
class Staleness:
    """What the nodes agree on about their links; a higher version supersedes a lower one.

    The dual steps of an edge's two ends must be equal for most of the time, so the level changes in
    powers of two and seldom.
    """

    version: int = 0
    level: float = 0.0  # 0: no message was ever late; 1/2, 1, 2, ...: rounds, about
    peak: float = 0.0
    mean: float = 0.0  # of this node's own links
    since: int = 0  # rounds since the level changed here

    def merged(self, version: int, level: float, peak: float) -> Staleness:
        """After a neighbour's header."""
        newer = (version, level) > (self.version, self.level)
        merged = replace(self, peak=max(self.peak, PEAK_DECAY * peak))
        return replace(merged, version=version, level=level, since=0) if newer else merged

    def observed(self, lags: list[int], node: int) -> Staleness:
        """After a round in which the neighbours' newest messages were so many rounds old."""
        if self.level == 0 and not any(lags):
            return self
        lag = float(np.clip(lags, 0, STALENESS_CAP).mean())
        mean = (1 - STALENESS_MEMORY) * self.mean + STALENESS_MEMORY * lag
        peak = max(mean, PEAK_DECAY * self.peak)
        now = replace(self, mean=mean, peak=peak, since=self.since + 1)
        if self.level == 0 or mean > RAISE_ABOVE * self.level:
            return replace(now, version=self.version + 1, level=max(0.5, 2 * self.level), since=0)
        lower = node == LOWERING_NODE and self.level > 0.5 and now.since > LOWER_AFTER
        if lower and peak < LOWER_BELOW * self.level:
            return replace(now, version=self.version + 1, level=0.5 * self.level, since=0)
        return now


@stored_as("admm-schedule")
@dataclass(frozen=True)
class Schedule:
    """Self-anchored weights g_1..g_r and dual steps s_0..s_{r-1} that realise a mixing."""

    anchor: tuple[float, ...]
    dual_step: tuple[float, ...]

    @classmethod
    def of(cls, mixing: Mixing) -> Schedule:
        """g_{m-1} = 1 + b_m g_m, s_{m-1} = a_m g_m, backwards from g_r = 1.

        With g_r = 1 the sweep ends at lambda = t - p, so that new statistics enter undamped.
        """
        anchor = [1.0]
        for momentum in reversed(mixing.momentum[1:]):
            anchor.append(1.0 + momentum * anchor[-1])
        anchor.reverse()
        steps = [a * g for a, g in zip(mixing.gradient, anchor, strict=True)]
        return cls(tuple(anchor), tuple(steps))


@stored_as("admm-plan")
@dataclass(frozen=True)
class Plan:
    """Settings for one network, worked out once from its spectrum."""

    schedule: Schedule | None  # None for a fixed penalty
    rounds: int  # between sweeps while every message arrives
    edge_penalty: float
    edge_rounds: int
    fixed_rounds: bool
    lowest: float  # l_2
    exact: bool = False  # the schedule leaves no disagreement but rounding


@stored_as("admm-state")
class AdmmState(NamedTuple):
    """One node's side of the algorithm."""

    view: SpectralView
    plan: Plan
    target: FloatArray
    belief: FloatArray  # lambda_i
    total: FloatArray  # S_i
    dual: FloatArray  # p_i
    round: int = 0
    phase: int = 0  # rounds since the last sweep
    staleness: Staleness = Staleness()
    history: Mapping[int, FloatArray] = MappingProxyType({})  # round -> S_i
    newest: Mapping[int, int] = MappingProxyType({})  # neighbour -> its newest round
    duals: Mapping[int, FloatArray] = MappingProxyType({})  # S_i[k_ij] - S_j[k_ij]
    their_beliefs: Mapping[int, FloatArray] = MappingProxyType({})  # lambda_j as last received
    edges: Mapping[int, FloatArray] = MappingProxyType({})  # rho_ij
    last_step: float = 1.0  # dual step of the newest own message

    @property
    def steady(self) -> bool:
        """Whether the fast schedule is on: automatic, and no message was ever late."""
        return self.plan.schedule is not None and self.staleness.level == 0

    @property
    def sweep_length(self) -> int:
        """Rounds between sweeps as the links are now."""
        plan = self.plan
        if self.steady:
            return plan.rounds
        if plan.fixed_rounds:
            return plan.edge_rounds
        return max(1, round(plan.edge_rounds * (1.0 + self.staleness.level)))

    @property
    def edge_penalty(self) -> float:
        """The penalty of the edge-anchored form, smaller when messages are late."""
        return self.plan.edge_penalty / (1.0 + 1.5 * self.staleness.level)


class BregmanADMM(ConsensusRule):
    """Bregman ADMM, the rule of the paper: neighbours see mixed statistics only.

    Parameters
    ----------
    penalty : float or "auto", default="auto"
        The constant c > 0 of the edge-anchored form; "auto" chooses forms and steps from the network's spectrum.
    rounds : int or "auto", default="auto"
        Rounds between local sweeps; "auto" is from the spectrum.
    relaxation : float, default=1.0
        Over-relaxation of the edge-anchored form, in (0, 2).
    damping : float or "auto", default="auto"
        Disagreement that the automatic schedule leaves after each sweep's rounds; "auto" is what converges wherever the
        data are, and networks that need more than 64 rounds for it are refused.
    """

    name = "bregman-admm"
    tolerates_loss = True
    header = HEADER

    def __init__(
        self,
        penalty: float | Literal["auto"] = "auto",
        rounds: int | Literal["auto"] = "auto",
        relaxation: float = 1.0,
        damping: float | Literal["auto"] = "auto",
    ) -> None:
        if penalty != "auto" and not (
            isinstance(penalty, Real) and not isinstance(penalty, bool) and 0 < penalty < np.inf
        ):
            raise ValueError(f"penalty must be 'auto' or a positive number, received {penalty!r}")
        if rounds != "auto" and not (int(rounds) == rounds and rounds >= 1):
            raise ValueError(f"rounds must be 'auto' or a positive integer, received {rounds!r}")
        if not 0 < relaxation < 2:
            raise ValueError(f"relaxation must lie in (0, 2), received {relaxation!r}")
        if damping != "auto" and not (
            isinstance(damping, Real) and not isinstance(damping, bool) and 0 < damping < 1
        ):
            raise ValueError(f"damping must be 'auto' or lie in (0, 1), received {damping!r}")
        self.penalty = penalty
        self.rounds = rounds
        self.relaxation = relaxation
        self.damping = damping

    def for_network(self, network: Network) -> ConsensusRule:
        if (self.penalty, self.rounds, self.damping) == ("auto", "auto", "auto"):
            needed = self._mixing(network.distinct_eigenvalues, network.n_nodes).rounds
            if needed > MOST_ROUNDS:
                raise ValueError(
                    f"consensus 'bregman-admm' needs {needed} rounds a sweep on {network!r}, in which rounding would "
                    f"exceed what sweeps need to converge (at most {MOST_ROUNDS}): use consensus='exact-sum', which needs "
                    f"{network.diameter}"
                )
        return self

    def _mixing(self, eigenvalues: FloatArray, n_nodes: int) -> Mixing:
        fixed = None if self.rounds == "auto" else self.rounds
        damping = stable_damping(n_nodes) if self.damping == "auto" else self.damping
        return design_mixing(eigenvalues, fixed, damping)

    def averages_exactly(self, view: SpectralView) -> bool:
        if self.penalty != "auto":
            return False
        return self._mixing(view.eigenvalues, view.n_nodes).damping == 0.0

    def rounding_growth(self, view: SpectralView) -> float:
        return amplification(view.eigenvalues)

    def local_view(self, network: Network, node: int) -> SpectralView:
        return SpectralView.of(network, node)

    def start(self, view: SpectralView, target: FloatArray) -> AdmmState:
        zero = np.zeros_like(target)
        return _accumulate(
            AdmmState(view, self._plan(view), target, target, zero, zero), self.relaxation
        )

    def advance(
        self, state: AdmmState, inbox: Mapping[int, Incoming]
    ) -> tuple[AdmmState, Progress]:
        state = _receive(state, inbox)
        dual = sum(state.duals.values(), np.zeros_like(state.target))
        lags = [state.round - state.newest.get(j, -1) for j in state.view.neighbours]
        # |L lambda| / l_2 bounds the distance to the average, and the change of p is s L lambda
        moved = relative_norm(dual - state.dual, state.belief)
        disagreement = moved / (state.last_step * state.plan.lowest)
        if not state.steady or max(lags, default=0) > 0:
            disagreement = max(disagreement, _apart(state))
        elif state.plan.exact and not any(lags):
            # within a sweep beliefs may move apart before its last round brings them together
            disagreement = EXACT_ROUNDING
        state = _catch_up(state)
        state = state._replace(
            dual=dual,
            staleness=state.staleness.observed(lags, state.view.node),
            round=state.round + 1,
            phase=state.phase + 1,
        )
        state = _step_self(state) if state.steady else _step_edge(state, self.relaxation)
        ready = state.phase >= state.sweep_length
        if not ready:
            state = _accumulate(state, self.relaxation)
        return state, Progress(ready, disagreement, late=max(lags, default=0) > 0)

    def retarget(self, state: AdmmState, target: FloatArray) -> AdmmState:
        belief = target - state.dual if state.steady else state.belief
        state = state._replace(target=target, belief=belief, phase=0)
        return _accumulate(state, self.relaxation)

    def payload(self, state: AdmmState) -> FloatArray:
        return _said(state, None if state.steady else state.belief)

    def sent(self, state: AdmmState, payload: FloatArray) -> AdmmState:
        # both ends of an edge must go by the same sums, or the duals no longer add up to zero; what the
        # message lacks stays in the total and is sent later
        sent = payload[HEADER : HEADER + state.target.size]
        return state._replace(history={**state.history, state.round: sent})

    def allowed_error(self, state: AdmmState, disagreement: float) -> float:
        # sums make up later for what earlier ones have left out
        size = float(np.linalg.norm(state.belief))
        return ERROR_SHARE * ERROR_SHRINKING**state.round * min(disagreement, 1.0) * size

    def final_payload(self, state: AdmmState, agreed: FloatArray) -> FloatArray:
        return _said(state, agreed)

    def shortest(self, state: AdmmState) -> int:
        return HEADER + state.target.size

    def final_estimate(self, payload: FloatArray, like: FloatArray) -> FloatArray | None:
        size = like.size
        return payload[HEADER + size :] if payload.size == HEADER + 2 * size else None

    def estimate(self, state: AdmmState) -> FloatArray:
        return state.belief

    def rounds_per_sweep(self, view: SpectralView) -> int:
        return self._plan(view).rounds

    def _plan(self, view: SpectralView) -> Plan:
        fixed = None if self.rounds == "auto" else self.rounds
        edge_rounds = edge_form_rounds(view, self.penalty) if fixed is None else fixed
        schedule, rounds, exact = None, edge_rounds, False
        if self.penalty == "auto":
            mixing = self._mixing(view.eigenvalues, view.n_nodes)
            schedule, rounds = Schedule.of(mixing), mixing.rounds
            exact = mixing.damping == 0.0
        c = edge_penalty(view, self.penalty)
        return Plan(schedule, rounds, c, edge_rounds, fixed is not None, view.lowest, exact)


def _said(state: AdmmState, belief: FloatArray | None) -> FloatArray:
    late = state.staleness
    head = np.array([late.version, late.level, late.peak])
    return np.concatenate([head, state.total] if belief is None else [head, state.total, belief])


# -- the two steps ----------------------------------------------------------------------


def _apart(state: AdmmState) -> float:
    """Distance from the neighbours' beliefs as last received; infinite while one was never received.

    With lost messages the dual may stand still while beliefs differ: silence is not agreement.
    """
    if any(j not in state.their_beliefs for j in state.view.neighbours):
        return np.inf
    gap = sum((state.belief - other for other in state.their_beliefs.values()), 0.0 * state.belief)
    return relative_norm(gap, state.belief) / state.plan.lowest


def _step_self(state: AdmmState) -> AdmmState:
    assert state.plan.schedule is not None
    weight = state.plan.schedule.anchor[state.phase - 1]
    pull = state.target - state.dual
    return state._replace(belief=(pull + (weight - 1.0) * state.belief) / weight)


def _step_edge(state: AdmmState, relaxation: float) -> AdmmState:
    c = state.edge_penalty
    pull = state.target - state.dual
    edges = {}
    for j in state.view.neighbours:
        # an edge without any message yet pulls towards the node's own belief
        middle = 0.5 * (state.belief + state.their_beliefs.get(j, state.belief))
        edges[j] = relaxation * middle + (1.0 - relaxation) * state.edges.get(j, middle)
        pull = pull + c * edges[j]
    return state._replace(belief=pull / (1.0 + c * state.view.degree), edges=edges)


def _accumulate(state: AdmmState, relaxation: float) -> AdmmState:
    """S_i <- S_i + s lambda_i: what the next message carries."""
    if state.steady:
        assert state.plan.schedule is not None
        step = state.plan.schedule.dual_step[state.phase]
    else:
        step = 0.5 * state.edge_penalty * relaxation
    total = state.total + step * state.belief
    keep = HISTORY if state.staleness.level > 0 else 1
    history = {k: v for k, v in state.history.items() if k > state.round - keep}
    history[state.round] = total
    return state._replace(total=total, history=history, last_step=step)


def _extrapolated(state: AdmmState, number: int) -> FloatArray:
    """S_i of a round that this node has not reached: as if it held its belief until then."""
    return state.total + (number - state.round) * state.last_step * state.belief


def _catch_up(state: AdmmState) -> AdmmState:
    """A neighbour that is ahead sets the pace: in rounds skipped here the node held its belief.

    Were nothing added for them, the two ends' sums would drift apart with every skipped round.
    """
    newest = max([state.round, *state.newest.values()])
    if newest == state.round:
        return state
    first = max(state.round + 1, newest - HISTORY)
    history = {k: v for k, v in state.history.items() if k > newest - HISTORY}
    history |= {k: _extrapolated(state, k) for k in range(first, newest + 1)}
    return state._replace(round=newest, total=history[newest], history=history)


def _receive(state: AdmmState, inbox: Mapping[int, Incoming]) -> AdmmState:
    """Pair each new message with this node's own sum of the same round."""
    newest, duals, beliefs = dict(state.newest), dict(state.duals), dict(state.their_beliefs)
    staleness = state.staleness
    size = state.target.size
    oldest = min(state.history)
    for j, message in inbox.items():
        if message.round <= newest.get(j, -1) or message.round < oldest:
            continue  # superseded, or older than this node remembers
        mine = state.history.get(message.round)
        if mine is None:  # the neighbour is ahead
            mine = _extrapolated(state, message.round)
        newest[j] = message.round
        duals[j] = mine - message.payload[HEADER : HEADER + size]
        version, level, peak = message.payload[:HEADER]
        if 0 < level <= MOST_LATE and 0 <= version < 2**53:
            staleness = staleness.merged(int(version), float(level), float(peak))
        if message.payload.size > HEADER + size:
            beliefs[j] = message.payload[HEADER + size :]
    return state._replace(newest=newest, duals=duals, their_beliefs=beliefs, staleness=staleness)


# -- settings from the spectrum ---------------------------------------------------------


def edge_penalty(view: SpectralView, penalty: float | str) -> float:
    """c = 2/sqrt(l_2 l_max) for "auto" (docs/mathematics.md)."""
    if penalty != "auto":
        return float(penalty)
    values = view.eigenvalues
    return float(2.0 / np.sqrt(values[0] * values[-1])) if len(values) else 1.0


def edge_form_rounds(view: SpectralView, penalty: float | str) -> int:
    """Rounds that damp disagreement to EDGE_DAMPING in the edge-anchored form."""
    # on irregular graphs the hubs move more slowly than the mean degree suggests
    degree = 0.5 * (view.mean_degree + view.max_degree)
    return _edge_form_rounds(degree, tuple(view.eigenvalues), edge_penalty(view, penalty))


@lru_cache(maxsize=256)
def _edge_form_rounds(degree: float, eigenvalues: tuple[float, ...], c: float) -> int:
    """Along a Laplacian eigenvector l of a d-regular graph, with u = c l / 2 and g = 1 + c d, a round is

    x^2 - x (1 + 2 c d - 2 u)/g + (c d - u)/g = 0; the largest |x| is the rate.
    """
    rate = 0.01
    for value in eigenvalues:
        u, g = 0.5 * c * value, 1.0 + c * degree
        roots = np.roots([1.0, -(1 + 2 * c * degree - 2 * u) / g, (c * degree - u) / g])
        rate = max(rate, float(np.abs(roots).max()))
    return int(np.ceil(np.log(EDGE_DAMPING) / np.log(min(rate, 0.999))))
