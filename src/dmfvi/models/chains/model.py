"""Hidden Markov models (MacKay 1997; Beal 2003): sequences are local, all parameters global.

    z_1 ~ Categorical(pi)   z_t+1 | z_t = i ~ Categorical(A_i)   x_t | z_t = k ~ emission_k
    pi, A_i ~ Dirichlet     emission_k ~ NormalWishart, NormalGamma by feature, or Dirichlet over symbols

q(z) is a chain, found by forward and backward passes with exp E[log .] in place of probabilities; the
log sums of these passes are the sequences' part of the bound. Missing observations add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.families import Dirichlet, Product
from dmfvi.inference.model import ConjugateModel, Coroutine, Statistics
from dmfvi.linalg import FloatArray
from dmfvi.models.chains.emissions import Emission
from dmfvi.models.chains.kernels import ChainPosteriors, chain_posteriors

#: part of each row that the first transitions keep from the memberships of a start
START_WEIGHT = 1.0


@dataclass(frozen=True)
class Sequences:
    """One node's sequences: their observations, one after the other, and where each begins."""

    observations: Any  # as the emission wants them
    starts: NDArray[np.int64]  # offsets, the end included

    @property
    def n_steps(self) -> int:
        """Observations in all."""
        return int(self.starts[-1])


@dataclass(frozen=True)
class HiddenMarkov(ConjugateModel):
    """States, transitions and any emission."""

    n_states: int
    emission: Emission
    initial_concentration: FloatArray  # (K,)
    transition_concentration: FloatArray  # (K, K)

    @property
    def prior(self) -> Product:
        return Product(
            initial=Dirichlet.from_parameters(self.initial_concentration),
            transition=Dirichlet.from_parameters(self.transition_concentration),
            emission=self.emission.prior(self.n_states),
        )

    def start(self, shard: Sequences, rng: np.random.Generator) -> Coroutine:
        """Memberships, from the emission's own agreed start, and the moves between them."""
        member = yield from self.emission.memberships(shard.observations, self.n_states, rng)
        firsts = member[shard.starts[:-1]].sum(0)
        inside = np.ones(max(shard.n_steps - 1, 0), dtype=bool)
        inside[shard.starts[1:-1] - 1] = False  # no move from one sequence to the next
        moves = member[:-1][inside].T @ member[1:][inside]
        statistics = Product(
            initial=Dirichlet(START_WEIGHT * firsts),
            transition=Dirichlet(START_WEIGHT * moves),
            emission=self.emission.statistics(shard.observations, member, None),
        )
        total = yield statistics.pack()
        return self.from_statistics(total)

    def local_step(self, shard: Sequences, q: Product) -> Statistics:
        found = self.states(shard, q)
        firsts = found.states[shard.starts[:-1]].sum(0)
        statistics = Product(
            initial=Dirichlet(firsts),
            transition=Dirichlet(found.pairs),
            emission=self.emission.statistics(shard.observations, found.states, q["emission"]),
        )
        return Statistics(statistics, float(found.log_sums.sum()))

    def states(self, shard: Sequences, q: Product) -> ChainPosteriors:
        """q(z) of every sequence."""
        return chain_posteriors(*self.scores(shard, q), shard.starts)

    def scores(self, shard: Sequences, q: Product) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E[log p(x_t | z_t)] (T, K), E[log pi] (K,), E[log A] (K, K)."""
        emission = self.emission.scores(shard.observations, q["emission"])
        return emission, q["initial"].expected.log, q["transition"].expected.log
