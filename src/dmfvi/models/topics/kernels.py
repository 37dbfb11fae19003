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

from dmfvi.families.dirichlet import Dirichlet
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
    import numba

    from dmfvi.models.topics._kernels_numba import all_documents, some_documents

    n = len(documents.starts) - 1
    parallel = documents.counts.size * topics.shape[1] >= PARALLEL_FROM
    chunks = min(n, numba.get_num_threads()) if parallel else 1
    statistics = np.zeros((chunks, *topics.shape))
    found = np.ones((n, topics.shape[1])) if gamma is None else gamma.copy()
    bounds = np.zeros(n)
    topics = np.ascontiguousarray(topics)
    again = anew and gamma is not None
    given = (*documents, topics, prior, found, again, MARGIN, tolerance, max_steps)
    if parallel:
        all_documents(*given, statistics, bounds)
    else:
        some_documents(*given, 0, n, statistics[0], bounds)
    return DocumentPosteriors(found, statistics.sum(0) * topics, bounds)


def document_posteriors_plain(
    documents: Counts,
    topics: FloatArray,
    prior: FloatArray,
    gamma: FloatArray | None,
    tolerance: float,
    max_steps: int,
    anew: bool = False,
) -> DocumentPosteriors:
    """The NumPy twin, document by document."""
    n = len(documents.starts) - 1
    found = np.ones((n, topics.shape[1])) if gamma is None else gamma.copy()
    statistics, bounds = np.zeros_like(topics), np.zeros(n)
    for d in range(n):
        part = slice(documents.starts[d], documents.starts[d + 1])
        terms, counts = documents.terms[part], documents.counts[part]
        rows = topics[terms]
        both = anew and gamma is not None
        solved = _solve(rows, counts, prior, found[d], tolerance, 1 if both else max_steps)
        if both:
            fresh = _solve(rows, counts, prior, np.ones_like(prior), tolerance, max_steps)
            if fresh[1] > solved[1] + MARGIN:
                solved = fresh
            else:
                solved = _solve(rows, counts, prior, solved[0], tolerance, max_steps)
        found[d], bounds[d], weight = solved
        share = counts / (rows @ weight + 1e-300)
        np.add.at(statistics, terms, share[:, None] * weight)
    return DocumentPosteriors(found, statistics * topics, bounds)


def _solve(
    rows: FloatArray,
    counts: FloatArray,
    prior: FloatArray,
    gamma: FloatArray,
    tolerance: float,
    max_steps: int,
) -> tuple[FloatArray, float, FloatArray]:
    for step in range(max_steps + 1):
        weight = np.exp(psi(gamma) - psi(gamma.sum()))
        norm = rows @ weight + 1e-300
        updated = prior + weight * ((counts / norm) @ rows)
        change = np.abs(updated - gamma).sum()
        if step == max_steps or (step > 0 and change < tolerance * len(prior)):
            break
        gamma = updated
    divergence = Dirichlet.from_parameters(gamma).kl(Dirichlet.from_parameters(prior))
    return gamma, float(counts @ np.log(norm) - divergence), weight
