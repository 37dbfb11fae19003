"""
Nodes agree with the pooled fit
===============================

Five nodes on a ring fit a Bayesian PCA to data with missing entries. The left plot shows the convergence over the
rounds, the right plot the network.
"""

import matplotlib.pyplot as plt
import numpy as np

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random

rows = mask_at_random(make_low_rank(150, 10, n_components=2).data, rate=0.2)
model = BayesianPCA(2, network=Network.ring(5), random_state=0).fit(np.array_split(rows, 5))
pooled = BayesianPCA(2, random_state=0).fit(rows)
print("largest distance to the pooled posterior:")
print(max(p.distance(pooled.posterior_) for p in model.node_posteriors_))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
model.plot_convergence(ax=axes[0])
model.plot_network(ax=axes[1])
