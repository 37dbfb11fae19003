"""The examples of docs/uncertainty.md, in their order."""
# ruff: noqa

import numpy as np

from dmfvi import BayesianPCA, Network

rng = np.random.default_rng(0)
rows = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(120, 5))
pca = BayesianPCA(2, network=Network.ring(4), random_state=0).fit(rows)

location = pca.uncertainty("location")  # linear response
print(location.mean, location.std)
low, high = location.interval  # of level=0.9
draws = location.sample(1000, random_state=0)  # from the corrected Gaussian
print(pca.uncertainty("location", method="mean-field").std)  # too small
print(
    pca.uncertainty(lambda fitted: fitted.get_covariance()[0, 1])
)  # any function of the fitted estimator
print(pca.summary())  # the table of location and noise


gaps = np.where(rng.random(rows.shape) < 0.2, np.nan, rows)[:30]
small = BayesianPCA(2, random_state=0).fit(gaps)
filled, std = small.impute(gaps, return_std=True, uncertainty="linear-response")
low, high = small.impute_interval(gaps, uncertainty="linear-response")
