"""
Imputation with intervals
=========================

A third of the cells of a table is missing. The model imputes them with intervals. About 90 % of the intervals contain
the true value.
"""

import matplotlib.pyplot as plt
import numpy as np

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random

truth = make_low_rank(120, 12, n_components=3).data
table = mask_at_random(truth, rate=0.33)
model = BayesianPCA(3, network=Network.grid(2, 2), random_state=0).fit(table)
filled = model.impute(table)
low, high = model.impute_interval(table, level=0.9)
missing = np.isnan(table)
held = (truth[missing] >= low[missing]) & (truth[missing] <= high[missing])
print(f"{held.mean():.1%} of {missing.sum()} true values lie in their 90 % interval")

figure, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
ends = [truth[missing].min(), truth[missing].max()]
ax.errorbar(
    truth[missing],
    filled[missing],
    [filled[missing] - low[missing], high[missing] - filled[missing]],
    fmt=".",
    alpha=0.4,
    label="filled, with 90 % interval",
)
ax.plot(ends, ends, color="black", linewidth=1, label="equal")
ax.set(xlabel="true value", ylabel="filled value")
ax.legend()
