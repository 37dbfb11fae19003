"""Copy this file, rename the class, fill in three positions (docs/write_your_own_model.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmfvi import ConjugateModel, Statistics
from dmfvi.families import Gamma


@dataclass(frozen=True)
class MyModel(ConjugateModel):
    """x ~ ... given the global variable, with prior ...; say what a shard is."""

    n_features: int

    @property
    def prior(self) -> Gamma:
        # 1. A family of dmfvi.families, or Product(name=family, ...) of several.
        return Gamma.from_parameters(np.ones(self.n_features), np.ones(self.n_features))

    def start(self, shard: np.ndarray, rng: np.random.Generator) -> Gamma:
        # 2. Only where labels must be distinguished; the default is the prior. For sums over all data make it a
        #    coroutine: ``total = yield vector`` receives the sum of all nodes' vectors; return the belief at the end.
        return self.prior

    def local_step(self, shard: np.ndarray, q: Gamma) -> Statistics:
        # 3. The best q(local variables) for this shard under q, then what is added to the prior's natural
        #    parameters, and E[log p(x, z | global)] + H[q(z)] with all constants. Here: exponential waiting times.
        log_rate, rate = q.mean()
        statistics = Gamma(np.full(self.n_features, len(shard)), -shard.sum(0))
        bound = len(shard) * log_rate.sum() - float(shard.sum(0) @ rate)
        return Statistics(statistics, bound)


if __name__ == "__main__":
    from dmfvi import Network, check_model, infer

    waits = np.random.default_rng(0).exponential([1.0, 0.2], size=(75, 2))
    sites = [waits[:10], waits[10:50], waits[50:]]
    print(check_model(MyModel(2), sites))
    result = infer(MyModel(2), sites, Network.ring(3))
    print("rates", result.posterior.mean_value(), "after", result.n_rounds, "rounds")
