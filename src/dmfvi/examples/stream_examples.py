"""The examples of docs/stream.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank

rows = make_low_rank(600, 10, n_components=2).data
model = BayesianPCA(2, network=Network.ring(3), random_state=0)
for batch in np.array_split(rows, 6):
    model.partial_fit(batch)
print(model.summary())
