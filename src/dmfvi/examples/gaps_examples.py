"""The examples of docs/gaps.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import BayesianGaussianMixture, BayesianPCA, Imputer, Network

rng = np.random.default_rng(0)
whole = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(120, 5))
table = (whole + 3.0) * [1.0, 1000.0, 0.01, 1.0, 60.0]
table[rng.random(table.shape) < 0.2] = np.nan

model = BayesianPCA(2, noise="feature", network=Network.ring(3), random_state=0).fit(table)
filled, std = model.impute(table, return_std=True)
low, high = model.impute_interval(table, level=0.9)
tables = model.impute(table, n_draws=5, random_state=0)  # multiple imputation

candidates = [model, BayesianGaussianMixture(2, random_state=0)]
best = Imputer(candidates).fit(table)  # keeps the model with the highest bound
print(type(best.estimator_).__name__, best.lower_bounds_)
