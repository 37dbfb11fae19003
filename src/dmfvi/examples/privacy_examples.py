"""The examples of docs/privacy.md, in their order."""
# ruff: noqa

import numpy as np

from dmfvi.models import PoissonGamma

patient = np.array([[3.0, 0.0, 7.0]])
model = PoissonGamma(3)
sent = model.statistics(patient, model.prior)
print(sent[:3])  # the counts themselves
assert (sent[:3] == patient[0]).all()


from dmfvi import BayesianLogisticRegression, Federation, Network, consensus

rng = np.random.default_rng(0)
x = [rng.normal(size=(n, 2)) for n in (40, 60, 50, 30)]
y = [(rows @ [1.0, -1.0] + rng.logistic(size=len(rows)) > 0).astype(int) for rows in x]
star = Network.star(4)  # node 0 is the hub
by_tree = Federation(star, consensus=consensus.make("exact-sum", star, transport="tree"))
by_flood = Federation(star, consensus=consensus.make("exact-sum", star, transport="flood"))
models = [BayesianLogisticRegression(network=way).fit(x, y) for way in (by_tree, by_flood)]
assert (models[0].coef_ == models[1].coef_).all()
print(models[0].consensus_["transport"], models[0].coef_)
