"""From a model and shards to posteriors: the contract of a model, sums over a network, and the one session."""
