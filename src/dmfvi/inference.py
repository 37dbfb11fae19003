"""infer: any conjugate model, on any network, with the pooled posterior at every node."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from dmfvi._numeric import FloatArray
from dmfvi.agreement import Meeting
from dmfvi.consensus import RULES, AllReduce, BregmanADMM, ConsensusRule, Place
from dmfvi.consensus.mixing import design_mixing
from dmfvi.engines import open_engine
from dmfvi.engines.base import Engine
from dmfvi.engines.links import Links
from dmfvi.engines.local import RoundRecord, Run
from dmfvi.models.base import Belief, ConjugateModel
from dmfvi.models.conjugate import Conjugate, ConjugateBelief, distance
from dmfvi.network import Network
from dmfvi.node import Job
from dmfvi.progress import live_rounds

#: columns of a history
HISTORY = ("round", "objective", "change", "disagreement", "bytes_sent", "limited_steps")
#: called after every round with the record and the nodes' posteriors; returning True ends the run
InferenceObserver = Callable[[RoundRecord, list[Belief]], bool | None]
#: a node's side of an agreement: yields vectors, hears their sums, concludes
Talk = Callable[[Any], Generator[FloatArray, FloatArray, Any]]


@dataclass(frozen=True)
class Inference:
    """One posterior per node, and how the run went."""

    posteriors: list[Belief]
    run: Run
    start_rounds: int = 0
    start_bytes: int = 0

    @property
    def posterior(self) -> Belief:
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

    @property
    def n_rounds(self) -> int:
        """Message rounds after the start."""
        return self.run.n_rounds

    @property
    def history(self) -> dict[str, FloatArray]:
        """One entry per round of objective, change, disagreement, bytes sent and limited steps."""
        return history_of(self.run)

    def spread(self) -> float:
        """Largest relative distance of a node's posterior from node 0's."""
        return max(distance(q, self.posterior) for q in self.posteriors)


def infer(
    model: ConjugateModel,
    shards: Sequence[Any],
    network: Network | None = None,
    *,
    start: Belief | None = None,
    penalty: float | Literal["auto"] = "auto",
    rounds_per_sweep: int | Literal["auto"] = "auto",
    consensus: str | ConsensusRule = "bregman-admm",
    acceleration: bool | Literal["auto"] = "auto",
    tol: float = 1e-6,
    max_rounds: int = 5000,
    links: Links | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
    observer: InferenceObserver | None = None,
    carried: Sequence[FloatArray] | None = None,
    engine: str | Engine = "local",
) -> Inference:
    """Fit a conjugate model to one shard per node.

    Every node sees its own shard only and ends with the posterior that one machine holding all
    shards would have computed.

    model : what a node learns from its own data (docs/write_your_own_model.md).
    shards : one per node, of whatever type the model's ``local_step`` takes; ``network=None`` takes one.
    start : a belief to begin with instead of the model's own start.
    penalty, rounds_per_sweep, consensus : how neighbours agree, as for ``BayesianPCA``.
    acceleration : extrapolate sweeps; "auto" where the nodes agree exactly in every sweep.
    tol : relative accuracy of the natural parameters at which the nodes stop.
    observer : called after every round with the record and the posteriors; returning True ends the run.
    carried : per node, packed statistics and bound that are added to its shard's in every sweep.
    engine : "local", or "mpi" or an engine that runs one node in this process: then ``shards`` has its shard only.
    """
    if not isinstance(model, ConjugateModel):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"model must be an instance of a ConjugateModel, received {kind}")
    if isinstance(tol, bool) or not tol > 0:
        raise ValueError(f"tol must be positive, received {tol!r}")
    if int(max_rounds) != max_rounds or max_rounds < 1:
        raise ValueError(
            f"max_rounds must be a whole number of at least 1, received {max_rounds!r}"
        )
    session = Session.open(network, consensus, penalty, rounds_per_sweep, links, n_jobs, engine)
    result = session.infer(
        model,
        shards,
        start=start,
        acceleration=acceleration,
        tol=tol,
        max_rounds=max_rounds,
        random_state=random_state,
        verbose=verbose,
        observer=observer,
        carried=carried,
    )
    if result.n_rounds >= max_rounds:  # an observer may end a run before
        warn_unless_converged(result.run, tol, stacklevel=3)
    return result


@dataclass(frozen=True)
class Session:
    """A network with a way to agree and a place to run: one for all that a fit exchanges."""

    network: Network
    rule: ConsensusRule
    machine: Any
    meeting: Meeting
    exact: bool  # the nodes agree exactly in every sweep

    @classmethod
    def open(
        cls,
        network: Network | None,
        consensus: str | ConsensusRule = "bregman-admm",
        penalty: float | Literal["auto"] = "auto",
        rounds_per_sweep: int | Literal["auto"] = "auto",
        links: Links | None = None,
        n_jobs: int | None = None,
        where: str | Engine = "local",
    ) -> Session:
        """Check the settings and choose the rule; no network is one node."""
        graph = Network.complete(1) if network is None else network
        if not isinstance(graph, Network):
            raise TypeError(
                f"network must be a dmfvi.Network or None, received {type(graph).__name__}: "
                "make one with Network.ring(5) and the like, or wrap a graph with Network.from_networkx"
            )
        machine: Engine = open_engine(where, links, n_jobs)
        if network is None and links is not None:
            raise ValueError("links are for a network, received network=None: pass a network")
        machine.owned(graph)  # refuses a network that does not fit where it runs
        rule = make_rule(consensus, graph, penalty, rounds_per_sweep)
        exact = machine.reliable and averages_exactly(rule, graph)
        return cls(graph, rule, machine, Meeting(graph, machine, rule.collective), exact)

    @property
    def here(self) -> Sequence[int]:
        """The nodes that run in this process."""
        nodes: Sequence[int] = self.machine.owned(self.network)
        return nodes

    @property
    def whole(self) -> bool:
        """Whether all nodes run in this process, as in a simulation."""
        return len(self.here) == self.network.n_nodes

    def refuse_parts(self, n_parts: int, what: str = "rows as one array") -> None:
        """Where one node runs in this process, data of several nodes are a mistake."""
        if not self.whole:
            raise ValueError(
                f"received {n_parts} shards, but this process runs node {self.here[0]} only: "
                f"pass its own {what}"
            )

    def seed(self, random_state: Any) -> int:
        """A seed from whatever scikit-learn takes as one, the same at all nodes."""
        drawn = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        # processes may have drawn different ones
        return drawn if self.whole else int(self.of_first(float(drawn)))

    def of_first(self, value: float) -> float:
        """Node 0's number at all nodes, so that all decide alike."""
        return value if self.whole else float(self.meeting.broadcast(np.array([value]))[0][0])

    def agree(self, talk: Talk, shards: Sequence[Any]) -> list[Any]:
        """What the talks of all nodes conclude with; only what they yield is exchanged."""
        self._check_shards(shards)
        return self.meeting.discuss([talk(shard) for shard in shards])

    def infer(
        self,
        model: ConjugateModel,
        shards: Sequence[Any],
        *,
        start: Belief | None = None,
        acceleration: bool | Literal["auto"] = "auto",
        tol: float = 1e-6,
        max_rounds: int = 5000,
        random_state: Any = None,
        verbose: int = 0,
        observer: InferenceObserver | None = None,
        carried: Sequence[FloatArray] | None = None,
    ) -> Inference:
        """``dmfvi.infer`` within this session."""
        self._check_shards(shards)
        network = self.network
        accelerated = acceleration
        if accelerated == "auto":
            accelerated = self.exact and model.memoryless
        node_model = Conjugate(model, bool(accelerated), network.n_nodes == 1)
        if start is None:
            starts = self.shared_start(model, shards, random_state)
        else:
            starts = [start] * len(shards)
        if not np.all(starts[0].in_domain()):
            raise ValueError(
                f"the start of {type(model).__name__} is no proper distribution: {starts[0]!r}"
            )
        shares = [None] * len(shards) if carried is None else list(carried)
        beliefs = [node_model.begin(q, share) for q, share in zip(starts, shares, strict=True)]
        label = "pooled fit" if network.n_nodes == 1 else network.name
        with live_rounds(label, tol, max_rounds, verbose > 0) as show:

            def watch(record: RoundRecord, now: list[ConjugateBelief]) -> bool | None:
                show(record)
                return None if observer is None else observer(record, [b.q for b in now])

            job = Job(node_model, self.rule, tol=tol)
            run = self.machine.run(job, network, shards, beliefs, max_rounds, watch)
        return Inference(
            [b.q for b in run.beliefs], run, self.meeting.n_rounds, self.meeting.bytes_sent
        )

    def shared_start(
        self, model: ConjugateModel, shards: Sequence[Any], random_state: Any = None
    ) -> list[Belief]:
        """The model's start, the same to the last bit at every node."""
        seed = self.seed(random_state)
        made = [model.start(shard, np.random.default_rng(seed)) for shard in shards]
        talks = [talk for talk in made if isinstance(talk, Generator)]
        if not talks:
            return [q for q in made if not isinstance(q, Generator)]
        beliefs: list[Belief] = self.meeting.discuss(talks)
        agreed = self.meeting.broadcast(beliefs[0].pack())
        return [q.unpack(natural) for q, natural in zip(beliefs, agreed, strict=True)]

    def _check_shards(self, shards: Sequence[Any]) -> None:
        here = self.here
        if len(shards) != len(here):
            if not self.whole:
                raise ValueError(
                    f"received {len(shards)} shards, but this process runs node {here[0]} only: "
                    "pass its own shard in a list"
                )
            raise ValueError(
                f"received {len(shards)} shards for a network of {self.network.n_nodes} nodes: "
                "pass one per node, or [all data] without a network"
            )


def make_rule(
    consensus: str | ConsensusRule,
    network: Network,
    penalty: float | Literal["auto"] = "auto",
    rounds_per_sweep: int | Literal["auto"] = "auto",
) -> ConsensusRule:
    """The consensus rule by name, with its settings checked."""
    if isinstance(consensus, ConsensusRule):
        return consensus
    known = sorted(set(RULES) - {"moments-admm"})  # that one is for scalar Gaussians
    if consensus not in known:
        raise ValueError(f"consensus must be one of {known}, received {consensus!r}")
    admm = BregmanADMM(penalty, rounds_per_sweep)  # settings are checked even where unused
    if network.n_nodes == 1 or consensus == AllReduce.name:
        return AllReduce()
    if consensus == "statistics-tracking":
        return RULES[consensus](rounds_per_sweep)  # type: ignore[call-arg]
    return admm


def averages_exactly(rule: ConsensusRule, network: Network) -> bool:
    """Whether one sweep's rounds leave no disagreement, so that all nodes sweep in step."""
    if rule.collective:
        return True
    if not isinstance(rule, BregmanADMM) or rule.penalty != "auto":
        return False
    rounds = rule.rounds_per_sweep(Place.of(network, 0))
    fixed = None if rule.rounds == "auto" else rounds
    return design_mixing(network.distinct_eigenvalues, fixed, rule.damping).damping == 0.0


def history_of(run: Run) -> dict[str, FloatArray]:
    """The records of a run as one array per column."""
    return {name: np.array([getattr(r, name) for r in run.history]) for name in HISTORY}


def warn_unless_converged(run: Run, tol: float, stacklevel: int) -> None:
    """Say how far a run has come and what to do, at the caller's line."""
    if run.converged:
        return
    last, limited = run.history[-1], sum(record.limited_steps for record in run.history)
    warnings.warn(
        f"not converged after {last.round} rounds: relative change {last.change:.2e}, "
        f"disagreement {last.disagreement:.2e}, {limited} limited steps; nodes stop when the error they "
        f"estimate from both, and from how slowly changes shrink, is below tol/10 = {0.1 * tol:.1e}: "
        "raise max_rounds or loosen tol",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )
