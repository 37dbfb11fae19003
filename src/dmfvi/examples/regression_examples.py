"""The examples of docs/regression.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import GeneralizedLinearModel, Network

rng = np.random.default_rng(0)
x = [rng.normal(size=(n, 2)) for n in (30, 50, 20)]  # one array per site
events = [rng.poisson(np.exp(0.8 * rows[:, 0])) for rows in x]
years = [rng.uniform(0.5, 2.0, len(rows)) for rows in x]
model = GeneralizedLinearModel(family="poisson", network=Network.ring(3))
model.fit(x, events, exposure=years)
print(model.summary())
low, high = model.predict_interval(x[0], level=0.9)  # of the expected count in one year
