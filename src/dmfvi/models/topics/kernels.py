"""q(theta) of many documents under fixed topics: the local step of latent Dirichlet allocation.

For a document with counts c_w, alternate (Blei, Ng & Jordan 2003)

    q(z_w = k) ~ exp(E[log theta_k] + E[log beta_kw])        gamma_k = prior_k + sum_w c_w q(z_w = k)

from the gamma it is given, at least once, until gamma moves by less than ``tolerance`` on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.chunks import over_chunks, thread_count
from dmfvi.linalg import FloatArray

#: a solution from a new beginning replaces the old one if its bound is higher by this much
MARGIN = 1e-3
#: entries x topics below which threads cost more than they save
PARALLEL_FROM = 200_000


class DocumentPosteriors(NamedTuple):
    """gamma (n, K), expected counts of topic and term (V, K), and each document's part of the bound (n,)."""

    gamma: FloatArray
    statistics: FloatArray
    bound: FloatArray


class Counts(NamedTuple):
    """Documents in compressed rows: terms[starts[d]:starts[d+1]] with their counts."""

    starts: NDArray[np.int64]
    terms: NDArray[np.int64]
    counts: FloatArray


def document_posteriors(
    documents: Counts,
    topics: FloatArray,
    prior: FloatArray,
    gamma: FloatArray | None,
    tolerance: float,
    max_steps: int,
    anew: bool = False,
) -> DocumentPosteriors:
    """Compiled, documents in parallel. ``topics`` is exp E[log beta] as (V, K), term by term.

    Without ``gamma`` documents begin at gamma = 1; with ``anew`` they make one step from ``gamma``, are solved from
    gamma = 1 too, and keep the better of the two.
    """
    from dmfvi.models.topics._kernels_numba import some_documents

    n = len(documents.starts) - 1
    parallel = documents.counts.size * topics.shape[1] >= PARALLEL_FROM
    chunks = min(n, thread_count()) if parallel else 1
    statistics = np.zeros((chunks, *topics.shape))
    found = np.ones((n, topics.shape[1])) if gamma is None else gamma.copy()
    bounds = np.zeros(n)
    topics = np.ascontiguousarray(topics)
    again = anew and gamma is not None
    given = (*documents, topics, prior, found, again, MARGIN, tolerance, max_steps)
    over_chunks(some_documents, chunks, *given, statistics, bounds)
    return DocumentPosteriors(found, statistics.sum(0) * topics, bounds)
