"""q(theta) of many documents under fixed topics: the local step of latent Dirichlet allocation.

For a document with counts c_w, alternate (Blei, Ng & Jordan 2003)

    q(z_w = k) ~ exp(E[log theta_k] + E[log beta_kw])        gamma_k = prior_k + sum_w c_w q(z_w = k)

from the gamma it is given, at least once, until gamma moves by less than ``tolerance`` on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import psi

from dmfvi.families.base import FloatArray

#: documents below which threads cost more than they save
PARALLEL_FROM = 64


class DocumentPosteriors(NamedTuple):
    """gamma (n, K), expected counts of topic and term (V, K), and sum_w c_w log sum_k of each document."""

    gamma: FloatArray
    statistics: FloatArray
    fit: FloatArray


class Counts(NamedTuple):
    """Documents in compressed rows: terms[starts[d]:starts[d+1]] with their counts."""

    starts: NDArray[np.int64]
    terms: NDArray[np.int64]
    counts: FloatArray


def document_posteriors(
    documents: Counts,
    topics: FloatArray,
    prior: FloatArray,
    gamma: FloatArray,
    tolerance: float,
    max_steps: int,
) -> DocumentPosteriors:
    """Compiled, documents in parallel. ``topics`` is exp E[log beta] as (V, K), term by term."""
    import numba

    from dmfvi.kernels._documents_numba import all_documents

    n = len(documents.starts) - 1
    chunks = numba.get_num_threads() if n >= PARALLEL_FROM else 1
    statistics = np.zeros((chunks, *topics.shape))
    found, fits = gamma.copy(), np.zeros(n)
    topics = np.ascontiguousarray(topics)
    all_documents(*documents, topics, prior, found, tolerance, max_steps, statistics, fits)
    return DocumentPosteriors(found, statistics.sum(0) * topics, fits)


def document_posteriors_plain(
    documents: Counts,
    topics: FloatArray,
    prior: FloatArray,
    gamma: FloatArray,
    tolerance: float,
    max_steps: int,
) -> DocumentPosteriors:
    """The NumPy twin, document by document."""
    found, fits = gamma.copy(), np.zeros(len(gamma))
    statistics = np.zeros_like(topics)
    for d in range(len(gamma)):
        part = slice(documents.starts[d], documents.starts[d + 1])
        terms, counts = documents.terms[part], documents.counts[part]
        rows = topics[terms]
        for step in range(max_steps + 1):
            weight = np.exp(psi(found[d]) - psi(found[d].sum()))
            norm = rows @ weight + 1e-300
            updated = prior + weight * ((counts / norm) @ rows)
            change = np.abs(updated - found[d]).sum()
            if step == max_steps or (step > 0 and change < tolerance * len(prior)):
                break
            found[d] = updated
        fits[d] = counts @ np.log(norm)
        np.add.at(statistics, terms, (counts / norm)[:, None] * weight)
    return DocumentPosteriors(found, statistics * topics, fits)
