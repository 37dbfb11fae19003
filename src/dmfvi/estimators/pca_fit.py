"""From shards to per-node posteriors: the start, the run and the way back to the data's units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from dmfvi.agreement import Meeting
from dmfvi.consensus import ConsensusRule, MomentsADMM
from dmfvi.engines.base import Engine, Observer, RoundRecord, Run
from dmfvi.families.base import FloatArray
from dmfvi.models.base import Model
from dmfvi.models.pca import BayesianPcaModel
from dmfvi.models.pca_acceleration import AcceleratedPcaModel, without_memory
from dmfvi.models.pca_belief import PcaBelief, PcaPrior
from dmfvi.models.pca_factorised import FactorisedPcaModel
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.models.pca_shard import make_shard
from dmfvi.models.pca_start import (
    PcaStart,
    Units,
    count_vector,
    random_basis,
    read_basis,
    read_counts,
    read_start,
    spread_vector,
)
from dmfvi.models.pca_statistics import Layout
from dmfvi.models.pca_stream import carry, widen
from dmfvi.network import Network
from dmfvi.node import Job

#: accuracy of the sums that fix the units, and of the one that only improves the start
UNITS_ACCURACY, BASIS_ACCURACY = 1e-9, 1e-3
#: sweeps from a random start before hyper-parameters are learned; fewer from a spectral one, in
#: proportion to what is missing, since entries that are not there weaken its columns
HELD_SWEEPS = 15


@dataclass(frozen=True)
class PcaSettings:
    """What to fit, and how to agree."""

    n_components: int
    fit_mean: bool = True
    covariance: Literal["full", "diagonal"] = "full"
    noise: Literal["shared", "per_node"] = "shared"
    prior: PcaPrior | None = None  # None: vague, in units of the data
    init: Literal["spectral", "random"] = "spectral"
    expansion: bool = True
    replicated: bool = False
    tol: float = 1e-6
    max_rounds: int = 5000


@dataclass(frozen=True)
class PcaFit:
    """One posterior per node, and how the run went."""

    posteriors: list[PcaPosterior]
    run: Run
    start_rounds: int
    start_bytes: int
    log_scale_term: float  # add to a standardised bound to get the bound of the data
    model: BayesianPcaModel
    units: Units

    @property
    def lower_bound(self) -> float:
        """Evidence lower bound of the data, with all constants."""
        return self.run.history[-1].objective + self.log_scale_term


#: called after every round with the record and a function that gives the nodes' posteriors
PosteriorObserver = Callable[[RoundRecord, Callable[[], list[PcaPosterior]]], bool | None]


def fit_pca(
    shards: Sequence[FloatArray],
    network: Network,
    rule: ConsensusRule,
    engine: Engine,
    settings: PcaSettings,
    rng: np.random.Generator,
    observer: PosteriorObserver | None = None,
) -> PcaFit:
    """Fit Bayesian PCA over a network; only sums and statistics leave a node."""
    meeting = Meeting(network, engine, rule.collective)
    start, n_observed = agree_on_start(shards, meeting, settings, rng)
    units = start.units
    model = make_model(units, settings, units.complete)
    if isinstance(rule, MomentsADMM):
        share = 1.0 if settings.replicated else 1.0 / network.n_nodes
        known = {f.name: getattr(model, f.name) for f in fields(model)} | {"expansion": False}
        model = FactorisedPcaModel(**known, prior_share=share)
        # a coordinate's posterior variance is about 1 / (tau x samples that observe it)
        deviation = (start.noise_precision * n_observed / shards[0].shape[1]) ** -0.5
        rule = rule.in_units(3.0 * float(deviation))
    held = HELD_SWEEPS if settings.init == "random" else round(HELD_SWEEPS * start.missing)
    belief = model.start(start.loadings, start.noise_precision, held)
    log_scale_term = -n_observed * float(np.log(units.scale))
    beliefs = [belief] * len(shards)
    task = _Task(shards, beliefs, model, units, log_scale_term)
    return _run(task, network, rule, engine, settings, meeting, observer)


def make_model(units: Units, settings: PcaSettings, shared_rows: bool) -> BayesianPcaModel:
    """The model of standardised data."""
    prior = settings.prior
    width = settings.n_components + (1 if settings.fit_mean else 0)
    # a vague prior is vague in the data's own units; one that is given is in given units
    scaled_prior = PcaPrior() if prior is None else prior.rescaled(units.scale, units.shift)
    return BayesianPcaModel(
        Layout(len(units.shift), width, shared_rows),
        settings.n_components,
        settings.covariance,
        settings.noise,
        scaled_prior,
        settings.expansion,
    )


def posteriors_of(beliefs: list[Any], model: BayesianPcaModel, units: Units) -> list[PcaPosterior]:
    """In the data's units; columns in the same order and with the same signs at all nodes."""
    sort = model.prior.component_location is None
    made = [PcaPosterior.of(b, units, sort) for b in beliefs]
    return [made[0], *(p.aligned_to(made[0]) for p in made[1:])] if sort else made


def continue_pca(
    previous: PcaFit,
    shards: Sequence[FloatArray],
    network: Network,
    rule: ConsensusRule,
    engine: Engine,
    settings: PcaSettings,
    forgetting: float = 1.0,
    observer: PosteriorObserver | None = None,
) -> PcaFit:
    """Streaming variational Bayes: what earlier batches said is the prior of this one.

    Each node carries 1/V of the agreed statistics, tempered by ``forgetting``; the local variables of
    earlier batches are not visited again.
    """
    if len(previous.run.beliefs) != len(shards):
        raise ValueError(
            f"the model so far has {len(previous.run.beliefs)} nodes, now there are {len(shards)}: "
            "fit anew to change the network"
        )
    meeting = Meeting(network, engine, rule.collective)
    missing = meeting.sum([np.array([float(np.isnan(x).sum())]) for x in shards], BASIS_ACCURACY)
    observed = meeting.sum([np.array([float(np.isfinite(x).sum())]) for x in shards])
    model, beliefs = previous.model, previous.run.beliefs
    if model.layout.shared_rows and missing[0][0] > 0.5:
        model, beliefs = widen(model, beliefs)
    # replicated shares average statistics instead of adding them up: so with what is carried
    parts = 1 if settings.replicated else network.n_nodes
    carried = [carry(model, belief, parts, forgetting) for belief in beliefs]
    added = -float(observed[0][0]) * float(np.log(previous.units.scale))
    task = _Task(
        shards, carried, model, previous.units, forgetting * previous.log_scale_term + added
    )
    return _run(task, network, rule, engine, settings, meeting, observer)


@dataclass(frozen=True)
class _Task:
    """Data and start of one run."""

    shards: Sequence[FloatArray]
    beliefs: list[PcaBelief]
    model: BayesianPcaModel
    units: Units
    log_scale_term: float


def _run(
    task: _Task,
    network: Network,
    rule: ConsensusRule,
    engine: Engine,
    settings: PcaSettings,
    meeting: Meeting,
    observer: PosteriorObserver | None,
) -> PcaFit:
    prepared = [make_shard(task.units.apply(data), settings.fit_mean) for data in task.shards]
    model: Model = task.model
    if _extrapolates(task.model, network, settings):
        model = AcceleratedPcaModel(task.model)
    job = Job(model, rule, tol=settings.tol, replicated=settings.replicated)

    def posteriors(beliefs: list[Any]) -> list[PcaPosterior]:
        return posteriors_of(beliefs, task.model, task.units)

    watch: Observer | None = None
    if observer is not None:
        watch = lambda record, beliefs: observer(record, lambda: posteriors(beliefs))  # noqa: E731
    run = engine.run(job, network, prepared, task.beliefs, settings.max_rounds, watch)
    run.beliefs = [without_memory(belief) for belief in run.beliefs]
    return PcaFit(
        posteriors(run.beliefs),
        run,
        meeting.n_rounds,
        meeting.bytes_sent,
        task.log_scale_term,
        task.model,
        task.units,
    )


def _extrapolates(model: BayesianPcaModel, network: Network, settings: PcaSettings) -> bool:
    """Only on one node, where the belief follows from the sums alone.

    Nodes that agree to rounding only would extrapolate differently: the combination's weights are ill-conditioned.
    """
    alone = network.n_nodes == 1 and not settings.replicated
    return alone and type(model) is BayesianPcaModel and model.noise == "shared"


def agree_on_start(
    shards: Sequence[FloatArray], meeting: Meeting, settings: PcaSettings, rng: np.random.Generator
) -> tuple[PcaStart, float]:
    """The same start at every node, and the number of observed entries."""
    n_features, n_components = shards[0].shape[1], settings.n_components
    basis = random_basis(n_features, n_components, rng)
    random_loadings = rng.standard_normal((n_features, n_components))
    counts = meeting.sum([count_vector(data) for data in shards], UNITS_ACCURACY)
    unseen = np.flatnonzero(counts[0][1 + n_features :] < 0.5)
    if len(unseen):  # where each process has one node, only the sum knows
        raise ValueError(f"nobody has observed feature {unseen[0]}: drop it at every node")
    known = [read_counts(total, settings.fit_mean) for total in counts]
    means = [mean for mean, _ in known]
    first = meeting.sum(
        [spread_vector(x, mean, basis) for x, mean in zip(shards, means, strict=True)],
        UNITS_ACCURACY,
    )
    bases = [read_basis(total, basis) for total in first]
    second = meeting.sum(
        [spread_vector(x, m, b) for x, m, b in zip(shards, means, bases, strict=True)],
        BASIS_ACCURACY,
    )
    # units come from the accurate sum, loadings from the refined basis
    total = np.concatenate([first[0][:2], second[0][2:]])
    start = read_start(total, bases[0], means[0], counts[0][0], n_components, complete=known[0][1])
    if settings.init == "random":
        start = replace(start, loadings=random_loadings, noise_precision=1.0)
    location = None if settings.prior is None else settings.prior.component_location
    if location is not None:
        # a prior that tells the columns apart: turn the start towards it (orthogonal Procrustes)
        left, _, right = np.linalg.svd(start.loadings.T @ location)
        start = replace(start, loadings=start.loadings @ left @ right)
    start = PcaStart.unpack(meeting.broadcast(start.pack())[0], n_features)
    return start, float(counts[0][1 + n_features :].sum())
