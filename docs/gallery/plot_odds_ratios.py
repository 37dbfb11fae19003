"""
Odds ratios over three sites
============================

A logistic regression with rows at three sites, shown as a forest plot with intervals.
"""

import numpy as np

from dmfvi import BayesianLogisticRegression, Network

rng = np.random.default_rng(1)
x = [rng.normal(size=(n, 4)) for n in (40, 90, 60)]
weights = np.array([1.0, -0.6, 0.0, 0.3])
y = [(rng.random(len(rows)) < 1 / (1 + np.exp(-rows @ weights))).astype(int) for rows in x]
model = BayesianLogisticRegression(network=Network.chain(3)).fit(x, y)
print(model.summary())

ax = model.plot_forest()
