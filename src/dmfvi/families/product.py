"""Product: independent blocks under names, treated as one family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmfvi.families.base import Family, FloatArray


class Product(Mapping[str, Family]):
    """Independent named blocks; log-partition, entropy and KL are sums over blocks and batches."""

    def __init__(self, **blocks: Family) -> None:
        if not blocks:
            raise ValueError("Product needs at least one named block, received none")
        self._blocks = dict(blocks)

    def __getitem__(self, name: str) -> Family:
        return self._blocks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def log_partition(self) -> float:
        """Sum of the blocks' log-partitions."""
        return float(sum(block.log_partition().sum() for block in self._blocks.values()))

    def entropy(self) -> float:
        """Sum of the blocks' entropies."""
        return float(sum(block.entropy().sum() for block in self._blocks.values()))

    def kl(self, other: Product) -> float:
        """Sum of the blocks' divergences; the names must match."""
        self._check_names(other)
        return float(sum(self[name].kl(other[name]).sum() for name in self))

    def log_pdf(self, x: Mapping[str, Any]) -> float:
        """Sum of the blocks' log-densities at named values."""
        self._check_names(x)
        return float(sum(self[name].log_pdf(x[name]).sum() for name in self))

    def mean(self) -> dict[str, tuple[FloatArray, ...]]:
        """Mean parameters by block."""
        return {name: block.mean() for name, block in self._blocks.items()}

    def sample(self, rng: np.random.Generator, size: int | None = None) -> dict[str, Any]:
        """Draws by block."""
        return {name: block.sample(rng, size) for name, block in self._blocks.items()}

    def in_domain(self) -> bool:
        """Whether every distribution of every block is proper."""
        return all(bool(block.in_domain().all()) for block in self._blocks.values())

    def max_step(self, direction: Product) -> float:
        """Largest step along another product's natural parameters that all blocks allow."""
        self._check_names(direction)
        return min(float(np.min(self[name].max_step(direction[name].natural))) for name in self)

    def pack(self) -> FloatArray:
        """All blocks in order, in one flat vector."""
        return np.concatenate([block.pack() for block in self._blocks.values()])

    def unpack(self, vector: ArrayLike) -> Product:
        """Inverse of ``pack``, with the shapes of this product."""
        flat = np.asarray(vector, dtype=np.float64)
        if flat.shape != (self.packed_size,):
            raise ValueError(
                f"Product {list(self)} unpacks {self.packed_size} numbers, "
                f"received shape {flat.shape}"
            )
        blocks, at = {}, 0
        for name, block in self._blocks.items():
            blocks[name] = block.unpack(flat[at : at + block.packed_size])
            at += block.packed_size
        return Product(**blocks)

    @property
    def packed_size(self) -> int:
        """Length of ``pack()``."""
        return sum(block.packed_size for block in self._blocks.values())

    def _check_names(self, other: Mapping[str, Any]) -> None:
        if set(other) != set(self):
            raise ValueError(f"blocks {sorted(other)} do not match {sorted(self)}")

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={block!r}" for name, block in self._blocks.items())
        return f"Product({inside})"
