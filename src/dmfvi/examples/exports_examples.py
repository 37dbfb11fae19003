"""The examples of docs/exports.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import GeneralizedLinearModel, Network

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
visits = rng.poisson(np.exp(X @ [0.5, -0.3, 0.0]) * rng.gamma(1.5, 1 / 1.5, 200))
trees = {}
for family in ("poisson", "negative-binomial"):
    model = GeneralizedLinearModel(family=family, network=Network.ring(4)).fit(X, visits)
    trees[family] = model.to_arviz(1000, random_state=0, X=X, y=visits)
draws = model.to_xarray(1000, random_state=0)  # xarray.Dataset: coef, intercept
draws.to_netcdf("draws.nc", engine="h5netcdf")
