"""A node's statistics of its ratings, as one flat vector.

items      for each item A packed and L: D x (K(K+1)/2 + K), 104 numbers an item at rank 12
second     sum E vv' over users, K(K+1)/2
cross      sum E v f', K x F
gram       sum ff', F(F+1)/2
scalars    users, ratings, squared error, sum E g, sum E log g, bound
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmfvi.linalg import FloatArray, pack_symmetric, unpack_symmetric
from dmfvi.models.ratings.kernels import RecordLayout

N_SCALARS = 6


@dataclass(frozen=True)
class RatingStatistics:
    """The blocks of the vector."""

    items: FloatArray
    second: FloatArray
    cross: FloatArray
    gram: FloatArray
    n_users: float
    n_ratings: float
    residual: float
    weight: float
    log_weight: float
    bound: float

    def pack(self) -> FloatArray:
        """One flat vector."""
        return np.concatenate(
            [
                self.items.ravel(),
                pack_symmetric(self.second),
                self.cross.ravel(),
                pack_symmetric(self.gram),
                [
                    self.n_users,
                    self.n_ratings,
                    self.residual,
                    self.weight,
                    self.log_weight,
                    self.bound,
                ],
            ]
        )

    @classmethod
    def unpack(
        cls, vector: FloatArray, layout: RecordLayout, n_items: int, n_features: int
    ) -> RatingStatistics:
        """Inverse of ``pack``; the items are a view."""
        sizes = [
            n_items * layout.sums,
            layout.triangle,
            layout.width * n_features,
            n_features * (n_features + 1) // 2,
            N_SCALARS,
        ]
        if vector.shape != (sum(sizes),):
            raise ValueError(
                f"statistics of {n_items} items have {sum(sizes)} numbers, received {vector.shape}"
            )
        items, second, cross, gram, scalars = np.split(vector, np.cumsum(sizes)[:-1])
        return cls(
            items.reshape(n_items, layout.sums),
            unpack_symmetric(second),
            cross.reshape(layout.width, n_features),
            unpack_symmetric(gram),
            *(float(value) for value in scalars),
        )
