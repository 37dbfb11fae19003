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
