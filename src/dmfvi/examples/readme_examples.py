"""The examples of README.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random

X = mask_at_random(make_low_rank(500, 20, n_components=3).data, rate=0.3)  # NaN = missing
cameras = BayesianPCA(3, network=Network.ring(5), random_state=0).fit(X)  # rows split over 5 nodes
filled, std = cameras.impute(X, return_std=True)  # with uncertainty
low, high = cameras.impute_interval(X, level=0.9)
tables = cameras.impute(X, n_draws=5, random_state=0)  # multiple imputation
pooled = BayesianPCA(3, random_state=0).fit(X)  # network=None: one machine
print(cameras.n_rounds_, max(p.distance(pooled.posterior_) for p in cameras.node_posteriors_))


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
