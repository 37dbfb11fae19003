"""Product: independent blocks under names, one family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmfvi.families.base import Family
from dmfvi.linalg import FloatArray


class Product(Family):
    """Independent named blocks; log-partition, entropy and KL are sums over blocks and batches.

    ``q["rows"]`` is a block. Natural parameters and statistics are those of the blocks, one after the other.

    Parameters
    ----------
    **blocks : Family
        The blocks by name.
    """

    def __init__(self, **blocks: Family) -> None:
        if not blocks:
            raise ValueError("Product needs at least one named block, received none")
        self._blocks = dict(blocks)
        self.batch_shape = ()
        every = self._blocks.values()
        self.natural = tuple(part for block in every for part in block.natural)
        self.event_axes = tuple(axes for block in every for axes in block.event_axes)  # type: ignore[misc]
        self.natural_names = tuple(  # type: ignore[misc]
            f"{name}.{part}" for name, block in self.items() for part in block.natural_names
        )

    # -- a mapping of blocks ------------------------------------------------------------------

    def __getitem__(self, name: str) -> Family:
        return self._blocks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def items(self) -> Any:
        """Names and blocks."""
        return self._blocks.items()

    # -- the contract of a family -------------------------------------------------------------

    @classmethod
    def from_parameters(cls, **blocks: Family) -> Self:
        """From its blocks, by name."""
        return cls(**blocks)

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """Not defined: which statistics belong to which block is not known."""
        raise TypeError("a Product is built from its blocks: use from_mean of each of them")

    def parameters(self) -> dict[str, Any]:
        """Ordinary parameters by block."""
        return {name: block.parameters() for name, block in self.items()}

    def mean(self) -> tuple[FloatArray, ...]:
        return tuple(part for block in self._blocks.values() for part in block.mean())

    @property
    def expected(self) -> dict[str, Any]:
        """Expected statistics by block and name."""
        return {name: block.expected for name, block in self.items()}

    def log_partition(self) -> FloatArray:
        return np.asarray(sum(block.log_partition().sum() for block in self._blocks.values()))

    def statistics(self, x: Mapping[str, Any]) -> tuple[FloatArray, ...]:
        self._check_names(x)
        return tuple(part for name, block in self.items() for part in block.statistics(x[name]))

    def in_domain(self) -> NDArray[np.bool_]:
        return np.asarray(all(block.in_domain().all() for block in self._blocks.values()))

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        parts = zip(self._blocks.values(), self._split(direction), strict=True)
        return np.asarray(min(np.min(block.max_step(part)) for block, part in parts))

    def mean_value(self) -> dict[str, Any]:
        return {name: block.mean_value() for name, block in self.items()}

    def variance(self) -> dict[str, Any]:
        return {name: block.variance() for name, block in self.items()}

    def quantile(self, probability: float) -> dict[str, Any]:
        return {name: block.quantile(probability) for name, block in self.items()}

    def draw(self, rng: np.random.Generator, size: int | None = None) -> dict[str, Any]:
        return {name: block.draw(rng, size) for name, block in self.items()}

    # -- sums over blocks ---------------------------------------------------------------------

    def entropy(self) -> FloatArray:
        return np.asarray(sum(block.entropy().sum() for block in self._blocks.values()))

    def kl(self, other: Self) -> FloatArray:
        """Sum of the blocks' divergences; the names must match."""
        self._check_names(other)
        return np.asarray(sum(block.kl(other[name]).sum() for name, block in self.items()))

    def log_pdf(self, x: Mapping[str, Any]) -> FloatArray:
        """Sum of the blocks' log-densities at named values."""
        self._check_names(x)
        return np.asarray(sum(block.log_pdf(x[name]).sum() for name, block in self.items()))

    def replace(self, *natural: ArrayLike) -> Self:
        parts = zip(self.items(), self._split(natural), strict=True)
        return type(self)(**{name: block.replace(*part) for (name, block), part in parts})

    def block_slices(self) -> list[slice]:
        ends = accumulate((block.packed_size for block in self._blocks.values()), initial=0)
        return [slice(a, b) for a, b in pairwise(ends)]

    def _split(self, natural: Sequence[Any]) -> list[Sequence[Any]]:
        counts = (len(block.natural) for block in self._blocks.values())
        return [natural[a:b] for a, b in pairwise(accumulate(counts, initial=0))]

    def _check_names(self, other: Any) -> None:
        if set(other) != set(self):
            raise ValueError(f"blocks {sorted(other)} do not match {sorted(self)}")

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={block!r}" for name, block in self.items())
        return f"Product({inside})"
