"""Generalized linear models: the Gaussian posterior closest to the exact one, by agreed sums."""
