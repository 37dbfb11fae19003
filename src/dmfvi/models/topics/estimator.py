"""LatentDirichletAllocation: decentralized topics of documents, batch and stochastic."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.session import Session
from dmfvi.inference.stochastic import Minibatches, Stochastic, StochasticBelief
from dmfvi.linalg import FloatArray
from dmfvi.models.topics import model as lda
from dmfvi.models.topics.kernels import DocumentPosteriors
from dmfvi.models.topics.model import Documents, select_documents
from dmfvi.shard_lists import is_list_of_shards, joined
from dmfvi.validation import (
    check_choice,
    check_one_shard_per_node,
    check_positive,
    check_whole,
)


@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkEstimator
):
    """Topic model of documents that stay at their node: nodes exchange expected counts of topic and term.

    Parameters
    ----------
    n_components : int
        Number of topics.
    doc_topic_prior : float or None
        Concentration of the Dirichlet prior of a document's topic proportions; None is 1 / n_components.
    topic_word_prior : float or None
        Concentration of the Dirichlet prior of a topic's terms; None is 1 / n_components.
    learning_method : {"batch", "online"}
        "batch" raises the bound until ``tol`` is met. "online" makes ``n_passes`` passes of natural-gradient steps on
        minibatches.
    n_passes : int
        Passes over the documents of online learning.
    batch_size : int
        Documents of a minibatch at each node.
    learning_offset : float
        Step t of online learning has the size (learning_offset + t)^-learning_decay; larger values slow the first steps.
    learning_decay : float
        Exponent of the step size.
    total_samples : int
        Number of documents that the batches of ``partial_fit`` are a sample of.
    mean_change_tol : float
        Mean change at which a document's proportions have converged within one sweep.
    max_doc_update_iter : int
        Largest number of steps for a document within one sweep.
    n_init : int
        Number of starts. The one with the highest bound is kept.
    {shared parameters}

    Attributes
    ----------
    components_ : array (n_components, n_terms)
        Dirichlet parameters of the topics, as in scikit-learn.
    topic_word_ : array (n_components, n_terms)
        Posterior mean of the topics; rows sum to one.
    {shared attributes}
    """

    _draw_name = "topics"
    _uncertain = MappingProxyType({"topics": "topic_word_"})
    _kept = ("_steps_done",)

    n_components: int = 10
    _: KW_ONLY
    doc_topic_prior: float | None = None
    topic_word_prior: float | None = None
    learning_method: Literal["batch", "online"] = "batch"
    n_passes: int = 10
    batch_size: int = 128
    learning_offset: float = 10.0
    learning_decay: float = 0.7
    total_samples: int = 1_000_000
    mean_change_tol: float = 1e-3
    max_doc_update_iter: int = 100
    n_init: int = 1
    tol: float = 1e-4

    def fit(self, X: Any, y: Any = None, *, observer: InferenceObserver | None = None) -> Self:
        """Fit to counts X (n_documents, n_terms), sparse or dense, or to one such matrix per node."""
        session = self._open()
        matrices = self._matrices(X, session)
        self._check_settings()
        model = self._make_model()
        prepared = self._prepared(matrices, session)
        if self.learning_method == "batch":
            self._steps_done = 0
            return self._fit(session, model, prepared, n_init=self.n_init, observer=observer)
        # how many steps make a pass depends on the node with most documents
        own = [np.array([float(shard.n_documents)]) for shard in prepared]
        counts = [round(float(v[0])) for v in session.collective.gather(own)]
        size = min(int(self.batch_size), max(counts))
        steps = int(self.n_passes) * -(-max(counts) // size)
        return self._steps(session, model, prepared, float(sum(counts)), size, steps, None)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One natural-gradient step on these documents, taken as a minibatch of ``total_samples``."""
        session = self._open()
        first = not hasattr(self, "components_")
        matrices = self._matrices(X, session, reset=first)
        self._check_settings()
        model = self._make_model()
        prepared = self._prepared(matrices, session, 0 if first else getattr(self, "n_samples_", 0))
        size = max(shard.n_documents for shard in prepared)
        start = None if first else StochasticBelief(self._node_beliefs[0], self._steps_done)
        return self._steps(session, model, prepared, float(self.total_samples), size, 1, start)

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
        return float(joined(self.score_samples(X)).sum())

    def perplexity(self, X: Any) -> float:
        """exp(-score / number of words)."""
        check_is_fitted(self)
        parts = X if is_list_of_shards(X, self._data_form) else [X]
        words = sum(float(sparse.csr_array(self._counts(part)).sum()) for part in parts)
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

    def _steps(
        self,
        session: Session,
        model: lda.LatentDirichletAllocation,
        prepared: list[Documents],
        total: float,
        size: int,
        steps: int,
        start: StochasticBelief | None,
    ) -> Self:
        """So many natural-gradient steps on minibatches of ``size`` documents a node."""
        seed = session.seed(self.random_state)
        batches = [
            Minibatches(shard, shard.n_documents, select_documents, size, seed + node)
            for node, shard in zip(session.here, prepared, strict=True)
        ]
        online = Stochastic(model, total, float(self.learning_offset), float(self.learning_decay))
        made = session.fit(
            online,
            batches,
            tol=None,
            max_iter=steps,
            start=start,
            random_state=seed,
            verbose=self.verbose,
        )
        self._steps_done = made.beliefs[0].step
        self._context = None
        self._model = model
        self._keep(replace(made, beliefs=[belief.q for belief in made.beliefs], model=model))
        return self

    def _prepared(self, matrices: list[Any], session: Session, before: int = 0) -> list[Documents]:
        """Documents of each node, which are counted where all nodes run in this process."""
        prepared = [Documents.of(matrix) for matrix in matrices]
        count = sum(shard.n_documents for shard in prepared)
        self._rows_given = before + count if session.whole else None
        return prepared

    def _data_in_words(self) -> str:
        return super()._data_in_words().replace("row", "document")

    def _documents(self, X: Any) -> DocumentPosteriors:
        return self._model.documents(Documents.of(self._counts(X)), self._belief)

    def _check_settings(self) -> None:
        check_whole("n_components", self.n_components, 1)
        check_choice("learning_method", self.learning_method, ["batch", "online"])
        for name in ("doc_topic_prior", "topic_word_prior"):
            check_positive(name, getattr(self, name), optional=True)
        for name in ("mean_change_tol", "learning_offset", "learning_decay", "total_samples"):
            check_positive(name, getattr(self, name))
        for name in ("n_passes", "batch_size", "max_doc_update_iter"):
            check_whole(name, getattr(self, name), 1)
        if not 0.5 < self.learning_decay <= 1:
            raise ValueError(
                f"learning_decay must lie in (0.5, 1], received {self.learning_decay!r}"
            )

    def _make_model(self) -> lda.LatentDirichletAllocation:
        k = int(self.n_components)
        document = 1.0 / k if self.doc_topic_prior is None else float(self.doc_topic_prior)
        topic = 1.0 / k if self.topic_word_prior is None else float(self.topic_word_prior)
        return lda.LatentDirichletAllocation(
            k,
            int(self.n_features_in_),
            np.full(k, document),
            topic,
            float(self.mean_change_tol),
            int(self.max_doc_update_iter),
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
            if session.pooled:
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
