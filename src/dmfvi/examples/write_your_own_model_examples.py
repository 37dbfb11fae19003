"""The examples of docs/write_your_own_model.md, in their order."""
# ruff: noqa

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dmfvi import ConjugateModel, Network, Statistics, infer
from dmfvi.families import Gamma


@dataclass(frozen=True)
class PoissonGamma(ConjugateModel):
    n_features: int
    shape: float = 1.0
    rate: float = 1.0

    @property
    def prior(self):
        every = np.ones(self.n_features)
        return Gamma.from_parameters(self.shape * every, self.rate * every)

    def local_step(self, shard, q):
        seen = np.isfinite(shard)  # NaN is missing
        counts = np.where(seen, shard, 0.0)
        log_rate, rate = q.mean()  # E[log rate], E[rate]
        statistics = Gamma(counts.sum(0), -seen.sum(0))
        bound = counts.sum(0) @ log_rate - seen.sum(0) @ rate - gammaln(counts + 1).sum()
        return Statistics(statistics, bound)


rng = np.random.default_rng(0)
hospitals = [rng.poisson([2.0, 0.5, 7.0], size=(n, 3)).astype(float) for n in (30, 8, 120, 55)]

result = infer(PoissonGamma(3), hospitals, Network.ring(4))
pooled = infer(PoissonGamma(3), [np.concatenate(hospitals)])

print(result.posterior.parameters())  # node 0's: shape and rate of each feature
print(result.n_rounds, result.lower_bound, pooled.lower_bound)  # here the log evidence itself
assert max(np.abs(q.pack() - pooled.posterior.pack()).max() for q in result.posteriors) < 1e-6


from dmfvi import check_model, load, save

check_model(PoissonGamma(3), hospitals)
q = result.posterior
print(q, q.mean_value(), q.variance(), q.interval(0.9), q.sample(2, random_state=0))
save(result, "result.npz")  # posteriors and history; load("result.npz") has them again
assert load("result.npz").posterior.distance(q) == 0.0


from dmfvi import Federation, Links


def watch(record, inference):
    print(record.round, record.change, inference.posteriors[0].distance(pooled.posterior))
    return record.round >= 200


lossy = Federation(Network.ring(4), links=Links(loss=0.2))
result = infer(PoissonGamma(3), hospitals, lossy, observer=watch)


@dataclass(frozen=True)
class CentredStart(PoissonGamma):
    def start(self, shard, rng):  # rng is seeded alike at all nodes
        seen = np.isfinite(shard)
        total = yield np.concatenate([np.where(seen, shard, 0.0).sum(0), seen.sum(0)])
        rate = total[: self.n_features] / total[self.n_features :]
        every = np.ones(self.n_features)
        return Gamma.from_parameters(every, every / rate)


result = infer(CentredStart(3), hospitals, Network.ring(4))
