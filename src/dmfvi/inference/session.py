"""Session: every fit of every model, on one machine or over a network, runs here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from dmfvi import consensus, engines
from dmfvi.consensus.base import ConsensusRule
from dmfvi.engines.base import Engine, RoundRecord, Run, Task
from dmfvi.engines.local import LocalEngine
from dmfvi.inference.acceleration import Accelerated
from dmfvi.inference.collective import Collective
from dmfvi.inference.federation import Federation
from dmfvi.inference.model import ConjugateModel, Coroutine, Model
from dmfvi.inference.result import Inference, InferenceObserver, warn_unless_converged
from dmfvi.inference.starts import best_of_short_runs, is_better
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.node import Batch, Job
from dmfvi.progress import live_rounds
from dmfvi.storage.structured import digest_of

#: with lost or late messages a sweep may take this many times its usual rounds, and some more
SLOW_LINKS, MORE_ROUNDS = 20, 1000
#: relative fall of a bound that is no rounding
FALLS = 1e-7
#: consecutive sweeps without a proper posterior after which a fit on exact sums is given up
IMPROPER_SWEEPS = 10


def infer(
    model: Model,
    shards: Sequence[Any],
    network: Network | Federation | None = None,
    *,
    start: Any = None,
    acceleration: bool | Literal["auto"] = "auto",
    tol: float = 1e-6,
    max_iter: int = 5000,
    max_rounds: int | None = None,
    n_init: int | Literal["auto"] = 1,
    random_state: Any = None,
    verbose: int = 0,
    observer: InferenceObserver | None = None,
    carried: Sequence[FloatArray] | None = None,
) -> Inference:
    """Fit a model to one shard per node.

    Every node sees its own shard only and ends with the posterior that one machine holding all shards would have
    computed.

    Parameters
    ----------
    model : Model
        What a node learns from its own data (docs/write_your_own_model.md).
    shards : sequence
        One per node, of whatever type the model's ``local_step`` takes; ``network=None`` takes one. Where one node
        runs in this process (``engine="mpi"``, for example) its own shard only.
    network : Network, Federation or None
        The graph of nodes, or also the consensus rule and the engine; None is one machine.
    start : belief or None
        To begin with instead of the model's own start.
    acceleration : "auto" or bool
        Extrapolate sweeps; "auto" where the nodes agree exactly in every sweep.
    tol : float
        Relative accuracy of the natural parameters at which the nodes stop.
    max_iter : int
        Largest number of sweeps (iterations).
    max_rounds : int or None
        Largest number of message rounds; None is enough for ``max_iter`` sweeps, also where messages are lost or late.
    n_init : int or "auto"
        Number of starts. The one with the highest bound is kept. A given ``start`` is one. "auto" is one, and for a model that has
        others (``starts()``) also the best of them after a few sweeps from each, unless it is far behind.
    random_state : int, RandomState or None
        Seed of the start.
    verbose : int
        0 is silent, 1 shows a progress bar, 2 a row for each node.
    observer : callable or None
        Called after every round with the record and the inference so far; returning True ends the run.
    carried : sequence of arrays or None
        Per node, statistics that are added to its shard's in every sweep: those of earlier batches.
    """
    if not isinstance(model, Model):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"model must be an instance of a ConjugateModel, received {kind}")
    session = Session.open(network)
    result = session.fit(
        model,
        shards,
        start=start,
        acceleration=acceleration,
        tol=tol,
        max_iter=max_iter,
        max_rounds=max_rounds,
        n_init=n_init,
        random_state=random_state,
        verbose=verbose,
        observer=observer,
        carried=carried,
    )
    if observer is None:  # an observer may end a run before
        warn_unless_converged(result.run, tol, stacklevel=2)
    if session.exact and session.whole and session.engine.reliable and model.memoryless:
        _warn_of_falling_bound(result, stacklevel=3)
    return result


def _warn_of_falling_bound(result: Inference, stacklevel: int) -> None:
    """Exact sums of a proper model never lower the bound."""
    bounds = [record.objective for record in result.run.history if record.swept]
    for sweep, (before, after) in enumerate(pairwise(bounds), 2):
        if after < before - FALLS * abs(before):
            warnings.warn(
                f"the bound fell in sweep {sweep}, from {before:.8g} to {after:.8g}: bound and statistics of "
                f"{type(result.model).__name__} do not belong together, do not trust either; "
                "dmfvi.check_model(model, shards) says which is wrong",
                UserWarning,
                stacklevel=stacklevel,
            )
            return


@dataclass(frozen=True)
class Session:
    """A network with a rule and an engine: one for all that a fit exchanges."""

    network: Network
    rule: ConsensusRule
    engine: Engine
    collective: Collective
    pooled: bool  # no network was given

    @classmethod
    def open(
        cls,
        network: Network | Federation | None,
        usual_consensus: str = "exact-sum",
        usual_settings: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make the rule and the engine.

        ``usual_consensus`` is what consensus="auto" means here, ``usual_settings`` those of a rule that takes them.
        """
        federation = Federation.of(network)
        graph = federation.network
        engine = engines.open_engine(federation.engine, federation.links, federation.n_jobs)
        if isinstance(engine, LocalEngine):
            engine.restart()  # one that was made already is used for many fits
        engine.owned(graph)  # refuses a network that does not fit where it runs
        chosen, settings = federation.consensus, dict(usual_settings or {})
        if chosen == "auto":
            chosen = "all-reduce" if graph.n_nodes == 1 else usual_consensus
            if not engine.reliable and not consensus.RULES[chosen].tolerates_loss:
                chosen = "exact-sum"
        if chosen in consensus.RULES:
            settings = {
                k: v for k, v in settings.items() if k in consensus.settings_of(str(chosen))
            }
        rule = consensus.make(
            chosen, graph, **({} if isinstance(chosen, ConsensusRule) else settings)
        )
        rule = rule.for_engine(engine.reliable, engine.transport)
        if isinstance(engine, LocalEngine):
            rule = rule.for_loss(graph, engine.links.highest_loss)
        return cls(graph, rule, engine, Collective(graph, engine, rule), network is None)

    @property
    def here(self) -> Sequence[int]:
        """The nodes that run in this process."""
        return self.engine.owned(self.network)

    @property
    def whole(self) -> bool:
        """Whether all nodes run in this process, as in a simulation."""
        return len(self.here) == self.network.n_nodes

    @property
    def label(self) -> str:
        """What a progress display calls this fit."""
        return "pooled fit" if self.network.n_nodes == 1 else self.network.name

    @property
    def rounds_per_sweep(self) -> int:
        """While no message is late."""
        return max(1, self.rule.rounds_per_sweep(self.rule.local_view(self.network, 0)))

    @property
    def exact(self) -> bool:
        """Whether one sweep's rounds leave no disagreement, so that all nodes sweep in step."""
        exact = self.rule.averages_exactly(self.rule.local_view(self.network, 0))
        return exact and (self.engine.reliable or self.rule.bitwise)

    # -- what nodes agree on ------------------------------------------------------------------

    def seed(self, random_state: Any) -> int:
        """A seed from whatever scikit-learn takes as one, the same at all nodes."""
        return int(self.seeds(random_state, 1)[0])

    def seeds(self, random_state: Any, count: int) -> list[int]:
        """Several seeds, the same at all nodes."""
        drawn = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=count)
        # processes may have drawn different ones
        return [int(self.of_first(float(seed))) for seed in drawn]

    def of_first(self, value: float) -> float:
        """Node 0's number at all nodes, so that all decide alike."""
        return value if self.whole else float(self.collective.broadcast(np.array([value]))[0][0])

    def agree(self, coroutine: Callable[[Any], Coroutine], shards: Sequence[Any]) -> list[Any]:
        """What one coroutine per shard returns; only what they yield is exchanged."""
        self._check_shards(shards)
        return self.collective.run([coroutine(shard) for shard in shards])

    def start(self, model: Model, shards: Sequence[Any], seed: int) -> list[Any]:
        """The model's start, the same to the last bit at every node."""
        made = [model.start(shard, np.random.default_rng(seed)) for shard in shards]
        if not isinstance(made[0], Generator):
            bits = {belief.pack().tobytes() for belief in made if hasattr(belief, "pack")}
            return made[:1] * len(made) if len(bits) == 1 else made
        return self._same_bits(model, self.collective.run(made))

    def short_runs(self, model: Model, shards: Sequence[Any], seed: int) -> tuple[list[Any], float]:
        """The best of short runs from the model's other starts, as ``start``, and the bound that it may reach."""
        made = self.collective.run([best_of_short_runs(model, shard, seed) for shard in shards])
        beliefs = self._same_bits(model, [each.belief for each in made])
        return beliefs, self.of_first(made[0].promise)

    def _same_bits(self, model: Model, beliefs: list[Any]) -> list[Any]:
        """Beliefs that follow from agreed sums, the same to the last bit."""
        if self.rule.bitwise and self.whole and model.beliefs_alike:
            return [beliefs[0]] * len(beliefs)  # the same already
        if not isinstance(model, ConjugateModel):
            return beliefs  # its coroutine ends with a broadcast
        agreed = self.collective.broadcast(beliefs[0].pack())
        return [q.unpack(natural) for q, natural in zip(beliefs, agreed, strict=True)]

    # -- the fit ------------------------------------------------------------------------------

    def fit(
        self,
        model: Model,
        shards: Sequence[Any],
        *,
        tol: float | None = 1e-6,
        max_iter: int = 5000,
        max_rounds: int | None = None,
        start: Any = None,
        n_init: int | Literal["auto"] = 1,
        random_state: Any = None,
        acceleration: bool | Literal["auto"] = "auto",
        carried: Sequence[FloatArray] | None = None,
        replicated: bool = False,
        verbose: int = 0,
        observer: InferenceObserver | None = None,
        log_volume: float = 0.0,
    ) -> Inference:
        """Start, run and choose; see ``infer``.

        ``tol=None`` makes exactly ``max_iter`` sweeps. ``start`` is a belief for all nodes, or a list with one per
        shard. ``replicated`` shares count the prior at every node, as the paper writes it.
        ``log_volume`` is added to the objective that observers and the terminal are shown: that of data in other units.
        """
        # what earlier batches carry belongs to the one start that they had
        automatic = n_init == "auto" and start is None and carried is None
        n_init = 1 if n_init == "auto" else n_init
        _check_settings(tol, max_iter, n_init, max_rounds)
        self._check_shards(shards)
        if start is not None and n_init > 1:
            warnings.warn(
                f"start was given: one fit from it instead of n_init={n_init}",
                UserWarning,
                stacklevel=3,
            )
            n_init = 1

        def run_from(begun: list[Any], fresh: Sequence[Any]) -> Inference:
            limits = max_iter, max_rounds or self._most_rounds(max_iter)
            attempt = _Attempt(
                model,
                fresh,
                begun,
                carried,
                tol,
                *limits,
                replicated,
                verbose,
                observer,
                log_volume,
            )
            return self._run(attempt, acceleration)

        best: Inference | None = None
        best_bound = -np.inf
        runs: list[Inference] = []
        bounds: list[float] = []
        seeds = self.seeds(random_state, n_init)
        for number, seed in enumerate(seeds):
            fresh = [model.refreshed(shard) for shard in shards] if n_init > 1 else shards
            begun = (
                self.start(model.restarted(number), fresh, seed)
                if start is None
                else _one_each(start, shards)
            )
            made = run_from(begun, fresh)
            runs.append(made)
            # the same choice at all nodes; starts that end alike keep the first's labels
            bound = self.of_first(made.lower_bound) if n_init > 1 else 0.0
            bounds.append(bound)
            if best is None or is_better(bound, best_bound):
                best, best_bound = made, bound
        assert best is not None
        # a run that was cut short is not compared with another
        if automatic and len(model.starts()) > 1 and self.of_first(best.converged):
            bounds[0] = best_bound = self.of_first(best.lower_bound)
            begun, promise = self.short_runs(model, shards, seeds[0])
            if is_better(promise, best_bound):
                made = run_from(begun, shards)
                runs.append(made)
                bounds.append(self.of_first(made.lower_bound))
                if is_better(bounds[-1], best_bound):
                    best = made
        others = tuple(
            bound
            for made, bound in zip(runs, bounds, strict=True)
            if made is not best and made.converged
        )
        return self._with_all_costs(replace(best, other_bounds=others), runs)

    def _with_all_costs(self, best: Inference, runs: Sequence[Inference]) -> Inference:
        """Rounds and bytes of starts, of short runs and of runs that are not kept count as those of the start."""
        if self.network.n_nodes == 1:
            return best
        others = [made.run for made in runs if made.run is not best.run]
        rounds = self.collective.n_rounds + sum(run.n_rounds for run in others)
        sent = sum(record.bytes_sent for run in others for record in run.history)
        return replace(best, start_rounds=rounds, start_bytes=self.collective.bytes_sent + sent)

    def _run(self, attempt: _Attempt, acceleration: bool | Literal["auto"]) -> Inference:
        model = attempt.model
        if isinstance(model, ConjugateModel) and not np.all(attempt.beliefs[0].in_domain()):
            raise ValueError(
                f"the start of {type(model).__name__} is no proper distribution: {attempt.beliefs[0]!r}"
            )
        rule = self.rule.for_model(model, attempt.beliefs[0])
        if acceleration == "auto":
            acceleration = self.exact and model.memoryless and not attempt.replicated
        runner: Model = model
        beliefs = _alike(attempt.beliefs) if rule.bitwise else attempt.beliefs
        if acceleration:
            # nodes that agree up to rounding only also send the totals that made their beliefs
            alike = self.network.n_nodes == 1 or self.rule.bitwise
            runner = Accelerated(model, shared=not alike)
            begun = {id(belief): runner.begin(belief) for belief in beliefs}
            beliefs = [begun[id(belief)] for belief in beliefs]  # one object stays one
        job = Job(
            runner,
            rule,
            tol=attempt.tol or 1.0,
            replicated=attempt.replicated,
            fixed_sweeps=attempt.max_iter if attempt.tol is None else None,
            max_sweeps=attempt.max_iter,
        )

        view = rule.local_view(self.network, 0)

        def inference(run: Run) -> Inference:
            cost = self.collective
            plain = [b.belief for b in run.beliefs] if acceleration else list(run.beliefs)
            spent = cost.n_rounds, cost.bytes_sent
            return Inference(model, plain, run, *spent, rule.facts(view, run.vector_size))

        so_far, most = Run(beliefs), attempt.max_rounds
        names = [self.network.labels[node] for node in self.here]
        with live_rounds(self.label, attempt.tol or 1.0, most, attempt.verbose, names) as show:
            improper = [0]

            def watch(record: RoundRecord, now: list[Any]) -> bool | None:
                record = replace(record, objective=record.objective + attempt.log_volume)
                show(record)
                if record.swept and self.exact and self.whole:
                    improper[0] = improper[0] + 1 if record.limited_steps else 0
                    if improper[0] >= IMPROPER_SWEEPS:
                        raise ValueError(_no_posterior(model, record))
                if attempt.observer is None:
                    return None
                so_far.history.append(record)
                so_far.beliefs = now
                return attempt.observer(record, inference(so_far))

            run = self.engine.run(Task(job, self.network, attempt.batches(), beliefs, most, watch))
        return inference(run)

    def _most_rounds(self, max_iter: int) -> int:
        rounds = max_iter * self.rounds_per_sweep
        return rounds if self.engine.reliable else SLOW_LINKS * rounds + MORE_ROUNDS

    def _check_shards(self, shards: Sequence[Any]) -> None:
        if len(shards) == len(self.here):
            return
        self.refuse_parts(len(shards), "shard in a list")
        raise ValueError(
            f"received {len(shards)} shards for a network of {self.network.n_nodes} nodes: "
            "pass one per node, or [all data] without a network"
        )

    def refuse_parts(self, n_parts: int, what: str = "rows as one array") -> None:
        """Where one node runs in this process, data of several nodes are a mistake."""
        if not self.whole:
            raise ValueError(
                f"received {n_parts} shards, but this process runs node {self.here[0]} only: "
                f"pass its own {what}"
            )


@dataclass(frozen=True)
class _Attempt:
    """One run from one start."""

    model: Model
    shards: Sequence[Any]
    beliefs: list[Any]
    carried: Sequence[FloatArray] | None
    tol: float | None
    max_iter: int
    max_rounds: int
    replicated: bool
    verbose: int
    observer: InferenceObserver | None = field(default=None)
    log_volume: float = 0.0

    def batches(self) -> Sequence[Any]:
        """The shards, with the statistics of earlier batches."""
        if self.carried is None:
            return self.shards
        return [Batch(s, extra) for s, extra in zip(self.shards, self.carried, strict=True)]


def _no_posterior(model: Model, record: RoundRecord) -> str:
    said = (
        f"{type(model).__name__}: in each of the last {IMPROPER_SWEEPS} of {record.sweeps} sweeps the prior and the sum of "
        "all statistics gave no proper distribution: "
    )
    if type(model).__module__.partition(".")[0] == "dmfvi":
        return said + model.improper_hint
    return said + (
        "most likely the statistics have a wrong sign or are no natural parameters; "
        "dmfvi.check_model(model, shards) says which"
    )


def _one_each(start: Any, shards: Sequence[Any]) -> list[Any]:
    return list(start) if isinstance(start, list) else [start] * len(shards)


def _alike(beliefs: Sequence[Any]) -> list[Any]:
    """Beliefs with the same bits as one object: what follows from them is then computed once."""
    if len({id(belief) for belief in beliefs}) == 1:
        return list(beliefs)
    first: dict[bytes, Any] = {}
    marks = [digest_of(belief) for belief in beliefs]
    return [
        belief if mark is None else first.setdefault(mark, belief)
        for belief, mark in zip(beliefs, marks, strict=True)
    ]


def _check_settings(tol: float | None, max_iter: int, n_init: int, max_rounds: int | None) -> None:
    if tol is not None and (isinstance(tol, bool) or not tol > 0):
        raise ValueError(f"tol must be positive, received {tol!r}")
    given = (("max_iter", max_iter), ("n_init", n_init), ("max_rounds", max_rounds or 1))
    for name, value in given:
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, received {value!r}")
