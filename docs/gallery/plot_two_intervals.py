"""
Intervals by mean field and by linear response
==============================================

Mean field treats the scores of PCA as independent of its location. The deviations of the location are therefore too
small. Linear response corrects them with sums over the same network.
"""

import matplotlib.pyplot as plt
import numpy as np

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank

rows = make_low_rank(60, 8, n_components=2).data
model = BayesianPCA(2, network=Network.ring(3), random_state=0).fit(rows)
wide = model.uncertainty("location")
narrow = model.uncertainty("location", method="mean-field")

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
places = np.arange(8)
ax.errorbar(places - 0.1, narrow.mean, 1.645 * narrow.std, fmt="o", label="mean field")
ax.errorbar(places + 0.1, wide.mean, 1.645 * wide.std, fmt="s", label="linear response")
ax.set(xlabel="feature", ylabel="location, 90 % interval", title="60 rows, 3 nodes")
ax.legend()
