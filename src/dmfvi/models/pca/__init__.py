"""Bayesian PCA, its mixture, and the baselines PPCA and SVD.

Read ``model.py`` first, then ``belief``, ``statistics``, ``shard`` and ``estimator``.
"""
