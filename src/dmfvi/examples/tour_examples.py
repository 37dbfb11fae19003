"""The examples of docs/tour.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random

table = mask_at_random(make_low_rank(200, 8, n_components=2).data, rate=0.2)  # NaN = missing
hospitals = np.array_split(table, 5)  # one array per hospital


model = BayesianPCA(2, network=Network.ring(5), random_state=0).fit(hospitals)
print(model.summary())


pooled = BayesianPCA(2, random_state=0).fit(table)
print(max(p.distance(pooled.posterior_) for p in model.node_posteriors_))


filled, std = model.impute(hospitals[0], return_std=True)
low, high = model.impute_interval(hospitals[0], level=0.9)
scores, spread = model.transform(hospitals[0], return_std=True)


location = model.uncertainty("location")
print(location.mean, location.std)


from dmfvi import Federation, Links

lossy = Federation(Network.ring(5), links=Links(loss=0.3, seed=1))
again = BayesianPCA(2, network=lossy, random_state=0).fit(hospitals)
print(again.n_rounds_, model.n_rounds_, again.posterior_.distance(model.posterior_))


import tempfile
from pathlib import Path
import dmfvi

file = Path(tempfile.mkdtemp()) / "model.npz"
dmfvi.save(model, file)
same = dmfvi.load(file)


import numpy as np
from dmfvi import BayesianGaussianMixture, BayesianLogisticRegression, Network

rng = np.random.default_rng(0)
shards = [rng.normal(size=(40, 3)) + site for site in range(5)]  # one array per clinic
outcomes = [(rows[:, 0] + rng.normal(size=40) > 2).astype(int) for rows in shards]
new_rows = rng.normal(size=(4, 3)) + 2
clinics = BayesianGaussianMixture(3, network=Network.star(5), random_state=0).fit(shards)
# no clinic needs both outcomes
risk = BayesianLogisticRegression(network=Network.ring(5)).fit(shards, outcomes)
chance, spread = risk.predict_proba(new_rows, return_std=True)  # spread: of the logit
