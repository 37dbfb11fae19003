"""Latent Dirichlet allocation (Blei, Ng & Jordan 2003; Hoffman, Blei & Bach 2010).

    theta_d ~ Dirichlet(a)   beta_k ~ Dirichlet(b)   z_dn ~ Categorical(theta_d)   w_dn ~ Categorical(beta_z)

Topics beta are global, theta and z local to a document. The statistics of a shard are its expected counts of
topic and term. A shard keeps its last q(theta), with which the next local step begins: so every step raises the
bound. In early steps, and in every tenth after, documents are also solved from a flat q(theta) and
keep the better solution, since topics may have changed since the last step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from dmfvi.families import Dirichlet
from dmfvi.inference.model import ConjugateModel, Statistics
from dmfvi.linalg import FloatArray
from dmfvi.models.topics.kernels import Counts, DocumentPosteriors, document_posteriors

#: shape of the Gamma draws that begin the topics: mean 1, deviation 0.1
START_SHAPE = 100.0
#: documents are solved from a flat q(theta) too in the first steps, and in every so-many-th step after
ANEW_FIRST, ANEW_EVERY = 10, 10

#: how well documents are solved for derivatives
SETTLED, SETTLED_STEPS = 1e-12, 10_000


@dataclass
class Documents:
    """One node's documents, and where the next local step begins."""

    counts: Counts
    gamma: FloatArray | None = None  # (n, K), last q(theta)
    visits: int = 0

    @classmethod
    def of(cls, matrix: csr_array) -> Documents:
        """From a sparse matrix of counts (n, V)."""
        compressed = csr_array(matrix)
        return cls(
            Counts(
                compressed.indptr.astype(np.int64),
                compressed.indices.astype(np.int64),
                compressed.data.astype(np.float64),
            )
        )

    @property
    def n_documents(self) -> int:
        """How many."""
        return len(self.counts.starts) - 1


@dataclass(frozen=True)
class LatentDirichletAllocation(ConjugateModel):
    """Topics as Dirichlet posteriors over V terms."""

    n_topics: int
    n_terms: int
    document_prior: FloatArray  # (K,): a
    topic_prior: float  # b
    tolerance: float = 1e-3  # of gamma, on average, within one local step
    max_steps: int = 100

    @property
    def memoryless(self) -> bool:
        return False  # documents begin where they left off

    @cached_property
    def prior(self) -> Dirichlet:
        return Dirichlet.from_parameters(np.full((self.n_topics, self.n_terms), self.topic_prior))

    def start(self, shard: Documents, rng: np.random.Generator) -> Dirichlet:
        """Random topics; they need not know the data."""
        draws = rng.gamma(START_SHAPE, 1.0 / START_SHAPE, (self.n_topics, self.n_terms))
        return Dirichlet.from_parameters(draws)

    def local_step(self, shard: Documents, q: Dirichlet) -> Statistics:
        found = self.documents(shard, q)
        shard.gamma, shard.visits = found.gamma, shard.visits + 1
        return Statistics(
            np.ascontiguousarray(found.statistics.T).ravel(), float(found.bound.sum())
        )

    def for_response(self) -> LatentDirichletAllocation:
        """Documents are solved to rounding from where the fit left them, and stay there."""
        return _Settled(
            **{each.name: getattr(self, each.name) for each in fields(self)}
            | {"tolerance": SETTLED, "max_steps": SETTLED_STEPS}
        )

    def refreshed(self, shard: Documents) -> Documents:
        return Documents(shard.counts)

    def documents(self, shard: Documents, q: Dirichlet) -> DocumentPosteriors:
        """q(theta) of a shard's documents, from where it left off."""
        return document_posteriors(
            shard.counts,
            np.exp(q.expected.log).T,
            self.document_prior,
            shard.gamma,
            self.tolerance,
            self.max_steps,
            anew=shard.visits < ANEW_FIRST or shard.visits % ANEW_EVERY == 0,
        )


@dataclass(frozen=True)
class _Settled(LatentDirichletAllocation):
    """The model near its fitted topics, where a document's q(theta) depends on the topics alone."""

    @property
    def memoryless(self) -> bool:
        return True

    def local_step(self, shard: Documents, q: Dirichlet) -> Statistics:
        return super().local_step(replace(shard, visits=ANEW_FIRST + 1), q)


def select_documents(documents: Documents, chosen: np.ndarray) -> Documents:
    """A minibatch: some of the documents, without their memory."""
    starts, terms, counts = documents.counts
    lengths = np.diff(starts)[chosen]
    at = np.concatenate([np.arange(starts[d], starts[d + 1]) for d in chosen]).astype(np.int64)
    return Documents(Counts(np.concatenate([[0], np.cumsum(lengths)]), terms[at], counts[at]))
