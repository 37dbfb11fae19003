"""
Lost messages do not change the result
======================================

The same fit runs with an increasing share of lost messages. It takes more rounds and gives the same bits.
"""

import matplotlib.pyplot as plt

from dmfvi import BayesianPCA, Federation, Links, Network
from dmfvi.datasets import make_low_rank

rows = make_low_rank(150, 10, n_components=2).data
network = Network.chain(6)
losses, rounds, distances = [0.0, 0.1, 0.3, 0.5], [], []
calm = BayesianPCA(2, network=network, random_state=0).fit(rows)
for loss in losses:
    where = Federation(network, links=Links(loss=loss, seed=0)) if loss else network
    model = BayesianPCA(2, network=where, random_state=0).fit(rows)
    rounds.append(model.n_rounds_)
    distances.append(model.posterior_.distance(calm.posterior_))
print("distances to the fit without loss:", distances)

figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.bar([f"{loss:.0%}" for loss in losses], rounds)
ax.set(xlabel="messages lost", ylabel="rounds", title="chain of six")
