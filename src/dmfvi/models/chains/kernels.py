"""Forward and backward over many sequences, safe in logarithms.

    alpha_t(j) = e_t(j) + log sum_i exp(alpha_t-1(i) + s_ij)        beta_t(i) = log sum_j exp(s_ij + e_t+1(j) + beta_t+1(j))

A sequence is first tried with probabilities scaled to one at each step, which needs K exponentials a step; where
a sum comes near underflow (transitions that are all but forbidden) it is done again in logarithms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.chunks import over_chunks, thread_count
from dmfvi.linalg import FloatArray

#: steps x states^2 below which threads cost more than they save
PARALLEL_FROM = 1_000_000


class ChainPosteriors(NamedTuple):
    """q(z_t) (T, K), sum of q(z_t, z_t+1) over all steps (K, K), log sum of each sequence."""

    states: FloatArray
    pairs: FloatArray
    log_sums: FloatArray


def chain_posteriors(
    emission: FloatArray, log_start: FloatArray, log_step: FloatArray, starts: NDArray[np.int64]
) -> ChainPosteriors:
    """Compiled, many sequences in parallel; ``starts`` are the sequences' offsets, the end included."""
    from dmfvi.models.chains._kernels_numba import some_chains

    n, k = emission.shape
    n_sequences = len(starts) - 1
    parallel = n_sequences > 1 and n * k * k >= PARALLEL_FROM
    chunks = min(n_sequences, thread_count()) if parallel else 1
    states, pairs, sums = np.empty((n, k)), np.zeros((chunks, k, k)), np.empty(n_sequences)
    given = [np.ascontiguousarray(v) for v in (emission, log_start, log_step, np.exp(log_step))]
    alpha, scale = np.empty((n, k)), np.empty(n)
    over_chunks(some_chains, chunks, *given, starts, alpha, scale, states, pairs, sums)
    return ChainPosteriors(states, pairs.sum(0), sums)


def most_probable_states(
    emission: FloatArray, log_start: FloatArray, log_step: FloatArray, starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The jointly most probable states of each sequence (Viterbi)."""
    from dmfvi.models.chains._kernels_numba import best_paths

    path = np.empty(len(emission), dtype=np.int64)
    best_paths(np.ascontiguousarray(emission), log_start, log_step, starts, path)
    return path
