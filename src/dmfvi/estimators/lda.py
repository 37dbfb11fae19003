"""LatentDirichletAllocation: decentralized topics of documents, batch and stochastic."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from dmfvi.consensus import ConsensusRule, Place
from dmfvi.engines.base import Engine
from dmfvi.engines.links import Links
from dmfvi.estimators.conjugate_estimator import ConjugateEstimator, generator_of
from dmfvi.estimators.validation import (
    check_choice,
    check_one_shard_per_node,
    check_positive,
    check_whole,
)
from dmfvi.families import Dirichlet
from dmfvi.families.base import FloatArray
from dmfvi.inference import Inference, Session
from dmfvi.kernels.documents import DocumentPosteriors
from dmfvi.models import lda
from dmfvi.models.lda import Documents, select_documents
from dmfvi.models.stochastic import Minibatches, Stochastic, StochasticBelief
from dmfvi.network import Network
from dmfvi.node import Job
from dmfvi.progress import live_rounds


class LatentDirichletAllocation(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ConjugateEstimator
):
    """Topics of documents, which stay where they are: nodes exchange expected counts of topic and term.

    Parameters
    ----------
    n_components : int, topics.
    doc_topic_prior : float or None (1 / n_components), of a document's proportions.
    topic_word_prior : float or None (1 / n_components), of a topic's terms.
    learning : {"batch", "stochastic"}
        Batch climbs the bound to ``tol``; stochastic makes ``n_passes`` passes of natural-gradient steps on minibatches.
    n_passes, batch_size, learning_offset, learning_decay : of stochastic learning; batch_size is each node's.
    total_samples : documents in all that ``partial_fit`` stands for.
    document_tol, max_document_steps : when a document's proportions count as found within one sweep.
    n_init : starts; the highest agreed bound wins.
    network, penalty, rounds_per_sweep, consensus, acceleration, tol, max_rounds, links, n_jobs, random_state,
    verbose, engine : as for ``BayesianPCA`` and ``BayesianGaussianMixture``; tol is looser by default.

    Attributes
    ----------
    components_ (n_components, n_terms) : Dirichlet parameters of the topics, as in scikit-learn.
    topic_word_ : posterior mean of the topics, rows sum to one.
    posterior_ : Dirichlet, one per topic.
    lower_bound_ : bound on the log probability of all words, in order; with all constants.
    """

    _kept = ("_steps",)

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: float | None = None,
        topic_word_prior: float | None = None,
        learning: Literal["batch", "stochastic"] = "batch",
        n_passes: int = 10,
        batch_size: int = 128,
        learning_offset: float = 10.0,
        learning_decay: float = 0.7,
        total_samples: int = 1_000_000,
        document_tol: float = 1e-3,
        max_document_steps: int = 100,
        n_init: int = 1,
        network: Network | None = None,
        penalty: float | Literal["auto"] = "auto",
        rounds_per_sweep: int | Literal["auto"] = "auto",
        consensus: str | ConsensusRule = "bregman-admm",
        acceleration: bool | Literal["auto"] = "auto",
        tol: float = 1e-4,
        max_rounds: int = 5000,
        links: Links | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        engine: str | Engine = "local",
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.learning = learning
        self.n_passes = n_passes
        self.batch_size = batch_size
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.total_samples = total_samples
        self.document_tol = document_tol
        self.max_document_steps = max_document_steps
        self.n_init = n_init
        self.network = network
        self.penalty = penalty
        self.rounds_per_sweep = rounds_per_sweep
        self.consensus = consensus
        self.acceleration = acceleration
        self.tol = tol
        self.max_rounds = max_rounds
        self.links = links
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.engine = engine

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to counts X (n_documents, n_terms), sparse or dense, or to one such matrix per node."""
        session = self._open()
        matrices = self._matrices(X, session)
        self._check_settings()
        self._model = self._make_model(matrices[0].shape[1])
        prepared = [Documents.of(matrix) for matrix in matrices]
        if self.learning == "stochastic":
            return self._fit_stochastic(session, prepared)
        return self._keep(self._best_of(self.n_init, session, self._model, prepared), session)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One natural-gradient step on these documents, taken as a minibatch of ``total_samples``."""
        session = self._open()
        first = not hasattr(self, "components_")
        matrices = self._matrices(X, session, reset=first)
        self._check_settings()
        if first:
            self._model = self._make_model(matrices[0].shape[1])
            self._steps = 0
        q = None if first else self._node_beliefs[0]
        prepared = [Documents.of(matrix) for matrix in matrices]
        size = max(shard.n_documents for shard in prepared)
        return self._stochastic_steps(
            session, prepared, float(self.total_samples), size, 1, q, self._steps
        )

    def transform(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean proportions of each document (n, K), with ``return_std`` also their deviations."""
        check_is_fitted(self)
        gamma = self._documents(X).gamma
        total = gamma.sum(1, keepdims=True)
        mean = gamma / total
        return (mean, np.sqrt(mean * (1.0 - mean) / (total + 1.0))) if return_std else mean

    def score_samples(self, X: Any) -> FloatArray:
        """Bound on the log probability of each document's words under the posterior topics."""
        check_is_fitted(self)
        return self._documents(X).bound

    def score(self, X: Any, y: Any = None) -> float:
        """Bound on the log probability of the words of all documents."""
        return float(self.score_samples(X).sum())

    def perplexity(self, X: Any) -> float:
        """exp(-score / number of words)."""
        check_is_fitted(self)
        words = float(sparse.csr_array(self._counts(X)).sum())
        return float(np.exp(-self.score(X) / words))

    def sample(self, n_samples: int = 1, length: int = 100, random_state: Any = None) -> Any:
        """Counts of new documents of ``length`` words from the posterior predictive distribution."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        check_whole("length", length, 1)
        rng = generator_of(random_state)
        theta = rng.dirichlet(self._model.document_prior, size=n_samples)
        rows = []
        for proportions in theta:
            topics = self.posterior_.sample(rng)
            rows.append(sparse.csr_array(rng.multinomial(length, proportions @ topics)[None, :]))
        return sparse.vstack(rows).tocsr()

    # -- helpers --------------------------------------------------------------------------

    def _fit_stochastic(self, session: Session, prepared: list[Documents]) -> Self:
        # how many steps make a pass depends on the node with most documents
        own = np.zeros((len(prepared), session.network.n_nodes))
        for place, (node, shard) in enumerate(zip(session.here, prepared, strict=True)):
            own[place, node] = shard.n_documents
        counts = np.round(session.meeting.sum(list(own))[0])
        longest = int(counts.max())
        size = min(int(self.batch_size), longest)
        steps = int(self.n_passes) * -(-longest // size)
        return self._stochastic_steps(session, prepared, float(counts.sum()), size, steps, None, 0)

    def _stochastic_steps(
        self,
        session: Session,
        prepared: list[Documents],
        total: float,
        size: int,
        steps: int,
        q: Dirichlet | None,
        done: int,
    ) -> Self:
        seed = session.seed(self.random_state)
        starts = (
            session.shared_start(self._model, prepared, seed) if q is None else [q] * len(prepared)
        )
        batches = [
            Minibatches(shard, shard.n_documents, select_documents, size, seed + i)
            for i, shard in zip(session.here, prepared, strict=True)
        ]
        model = Stochastic(
            self._model, total, float(self.learning_offset), float(self.learning_decay)
        )
        job = Job(model, session.rule, tol=self.tol, fixed_sweeps=steps)
        beliefs = [StochasticBelief(start, done) for start in starts]
        rounds = steps * session.rule.rounds_per_sweep(Place.of(session.network, 0))
        with live_rounds("stochastic fit", self.tol, rounds, self.verbose > 0) as show:
            run = session.machine.run(
                job, session.network, batches, beliefs, 100 * rounds, lambda r, _: show(r)
            )
        self._steps = done + steps
        made = Inference([b.q for b in run.beliefs], run)
        return self._keep(made, session)

    def _documents(self, X: Any) -> DocumentPosteriors:
        return self._model.documents(Documents.of(self._counts(X)), self._belief)

    def _check_settings(self) -> None:
        check_whole("n_components", self.n_components, 1)
        check_choice("learning", self.learning, ["batch", "stochastic"])
        for name in ("doc_topic_prior", "topic_word_prior"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("document_tol", "learning_offset", "learning_decay", "total_samples"):
            check_positive(name, getattr(self, name))
        for name in ("n_passes", "batch_size", "max_document_steps"):
            check_whole(name, getattr(self, name), 1)
        if not 0.5 < self.learning_decay <= 1:
            raise ValueError(
                f"learning_decay must lie in (0.5, 1], received {self.learning_decay!r}"
            )

    def _make_model(self, n_terms: int) -> lda.LatentDirichletAllocation:
        k = int(self.n_components)
        document = 1.0 / k if self.doc_topic_prior is None else float(self.doc_topic_prior)
        topic = 1.0 / k if self.topic_word_prior is None else float(self.topic_word_prior)
        return lda.LatentDirichletAllocation(
            k,
            n_terms,
            np.full(k, document),
            topic,
            float(self.document_tol),
            int(self.max_document_steps),
        )

    def _matrices(self, X: Any, session: Session, reset: bool = True) -> list[Any]:
        network = session.network
        if isinstance(X, list | tuple) and len(X) and all(len(np.shape(p)) == 2 for p in X):
            session.refuse_parts(len(X), "counts as one matrix")
            parts = [
                check_counts(check_array(p, accept_sparse="csr", dtype=np.float64), f"shard {i}: ")
                for i, p in enumerate(X)
            ]
            validate_data(self, X[0], accept_sparse="csr", dtype=np.float64, reset=reset)
            widths = [p.shape[1] for p in parts]
            if len(set(widths)) > 1:
                raise ValueError(
                    f"shards have different numbers of terms {widths}: agree on one vocabulary first"
                )
            if self.network is None:
                return [sparse.vstack(parts).tocsr()]
            check_one_shard_per_node(parts, network)
            return parts
        matrix = check_counts(
            validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)
        )
        if not session.whole:
            return [matrix]
        n = matrix.shape[0]
        if n < network.n_nodes:
            raise ValueError(
                f"{n} documents cannot be split over {network.n_nodes} nodes: use a smaller network"
            )
        edges = np.linspace(0, n, network.n_nodes + 1).astype(int)
        return [matrix[a:b] for a, b in pairwise(edges)]

    def _counts(self, X: Any) -> Any:
        return check_counts(
            validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False), empty=True
        )

    def _in_data_units(self, q: Dirichlet) -> Dirichlet:
        return q

    def _restore(self, content: dict[str, Any]) -> None:
        self._model = self._make_model(content["n_features_in"])
        super()._restore(content)

    def _take(self, node: int) -> None:
        self.components_ = self.posterior_.parameters()["concentration"]
        self.topic_word_ = self.components_ / self.components_.sum(1, keepdims=True)
        self._n_features_out = len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def check_counts(matrix: Any, label: str = "", empty: bool = False) -> Any:
    """A sparse matrix of whole, non-negative numbers; every document has words."""
    counts = sparse.csr_array(matrix)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if (counts.data < 0).any():
        raise ValueError(
            f"{label}Negative values in data: counts must be at least 0, received {counts.data.min():g}"
        )
    odd = counts.data[counts.data != np.round(counts.data)]
    if len(odd):
        raise ValueError(
            f"{label}counts must be whole numbers, received {odd[0]:g}: pass counts, not tf-idf"
        )
    bare = np.flatnonzero(np.diff(counts.indptr) == 0)
    if len(bare) and not empty:
        raise ValueError(f"{label}document {bare[0]} has no words: drop empty documents")
    return counts
