"""Factorization of rating matrices.

Read ``model.py`` first, then ``belief``, ``statistics``, ``shard`` and ``estimator``.
"""
