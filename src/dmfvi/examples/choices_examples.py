"""The examples of docs/choices.md, in their order."""
# ruff: noqa

from dmfvi import BayesianPCA, Federation, Links, Network, consensus
from dmfvi.datasets import make_low_rank

X = make_low_rank(100, 8, n_components=3).data
ring = Network.ring(5)
lossy = Federation(ring, links=Links(loss=0.3, delay=4, pauses={1: [(10, 40)]}))  # simulated
tuned = Federation(ring, consensus=consensus.make("bregman-admm", ring, rounds=4))
same = [BayesianPCA(3, network=n, random_state=0).fit(X) for n in (lossy, tuned)]
