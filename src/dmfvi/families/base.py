"""The contract of an exponential family: p(x) = h(x) exp(<eta, T(x)> - A(eta))."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmfvi.linalg import FloatArray, pack_symmetric, relative_norm, unpack_symmetric

#: number of trailing axes of a natural parameter that belong to one event
SCALAR, VECTOR, MATRIX = 0, 1, 2


def _of_probabilities(quantile: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which refuses what is no probability: it would give NaN."""

    @wraps(quantile)
    def checked(self: Any, probability: Any) -> Any:
        try:
            given = np.asarray(probability, dtype=np.float64)
        except (TypeError, ValueError):
            given = np.array(np.nan)
        if not ((given >= 0) & (given <= 1)).all():
            raise ValueError(f"probability must lie in [0, 1], received {probability!r}")
        return quantile(self, probability)

    return checked


class Family(ABC):
    """An array of distributions of one exponential family, stored as natural parameters.

    A subclass states only what is peculiar to it; entropy, KL, log-density, packing
    and arithmetic are derived here once. ``batch_shape`` is the shape of the array of
    distributions; each natural parameter has that shape plus its own event axes.

    Natural parameters and expected statistics have names: ``q.negative_rate`` is a natural parameter of a Gamma,
    ``q.expected.log`` its E[log x].

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    #: one name per natural parameter, the name of its statistic, and its number of event axes
    natural_names: ClassVar[tuple[str, ...]]
    statistic_names: ClassVar[tuple[str, ...]]
    event_axes: ClassVar[tuple[int, ...]]
    _expected_type: ClassVar[Any]

    def __init_subclass__(cls, **options: Any) -> None:
        """One attribute per natural parameter, a record type for the expected statistics, and quantiles of probabilities only."""
        super().__init_subclass__(**options)
        if "quantile" in cls.__dict__:
            cls.quantile = _of_probabilities(cls.quantile)  # type: ignore[method-assign]
        for position, name in enumerate(cls.__dict__.get("natural_names", ())):
            setattr(cls, name, _natural_parameter(position, name))
        if "statistic_names" in cls.__dict__:
            cls._expected_type = namedtuple("Expected", cls.statistic_names)  # type: ignore[misc]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> FloatArray: ...

    def __init__(self, *natural: ArrayLike) -> None:
        if len(natural) != len(self.natural_names):
            raise ValueError(
                f"{type(self).__name__} takes {len(self.natural_names)} natural parameters "
                f"{self.natural_names}, received {len(natural)}"
            )
        arrays = [np.asarray(value, dtype=np.float64) for value in natural]
        shapes = []
        for name, array, axes in zip(self.natural_names, arrays, self.event_axes, strict=True):
            if array.ndim < axes:
                raise ValueError(
                    f"{type(self).__name__}.{name} needs at least {axes} axes, "
                    f"received shape {array.shape}"
                )
            shapes.append(array.shape[: array.ndim - axes])
        self.batch_shape: tuple[int, ...] = shapes[0]
        self.natural: tuple[FloatArray, ...] = tuple(arrays)
        if any(shape != shapes[0] for shape in shapes):
            self._broadcast(arrays, shapes)

    def _broadcast(self, arrays: list[FloatArray], shapes: list[tuple[int, ...]]) -> None:
        try:
            batch = np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise ValueError(
                f"{type(self).__name__}: batch shapes {shapes} do not broadcast together"
            ) from error
        self.batch_shape = batch
        self.natural = tuple(
            np.broadcast_to(array, batch + array.shape[array.ndim - axes :])
            for array, axes in zip(arrays, self.event_axes, strict=True)
        )

    # -- what a family states -------------------------------------------------------

    @classmethod
    @abstractmethod
    def from_parameters(cls, *args: Any, **kwargs: Any) -> Self:
        """Build from the ordinary parameters (mean and variance, shape and rate, ...)."""

    @classmethod
    @abstractmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """Invert ``mean``: the member with E[T(x)] equal to the arguments."""

    @abstractmethod
    def parameters(self) -> dict[str, FloatArray]:
        """Ordinary parameters, by name."""

    @abstractmethod
    def mean(self) -> tuple[FloatArray, ...]:
        """Mean parameters mu = grad A(eta) = E[T(x)], one per natural parameter."""

    @abstractmethod
    def log_partition(self) -> FloatArray:
        """A(eta), of shape ``batch_shape``."""

    @abstractmethod
    def statistics(self, x: Any) -> tuple[FloatArray, ...]:
        """T(x), one array per natural parameter."""

    @abstractmethod
    def in_domain(self) -> NDArray[np.bool_]:
        """Whether each distribution is proper."""

    @abstractmethod
    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        """Largest a >= 0 such that eta + b * direction is in the domain for all b < a."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, size: int | None = None) -> Any:
        """Draws, with a leading axis of length ``size`` when it is given."""

    @abstractmethod
    def mean_value(self) -> Any:
        """E[x]; of a pair the pair of both, of a product a mapping by name."""

    @abstractmethod
    def variance(self) -> Any:
        """Var[x], entry by entry, in the form of ``mean_value``; infinite or NaN where it does not exist."""

    def quantile(self, probability: float) -> Any:
        """Values below which x lies with this probability, entry by entry, in the form of ``mean_value``."""
        raise ValueError(
            f"quantiles of a {type(self).__name__} have no closed form: take those of sample(n)"
        )

    def expected_log_base_measure(self) -> FloatArray:
        """E[log h(x)]; zero unless the family overrides it."""
        return np.zeros(self.batch_shape)

    def log_base_measure(self, x: Any) -> FloatArray | float:
        """log h(x); zero unless the family overrides it."""
        return 0.0

    # -- what follows for all ---------------------------------------------------------

    def sample(self, n: Any = None, random_state: Any = None) -> Any:
        """``n`` draws of x with a leading axis, or one without it (None).

        ``random_state`` is a seed, a NumPy generator or None. As in ``draw`` a generator may also come first.
        """
        if isinstance(n, np.random.Generator):
            return self.draw(n, random_state)
        if n is not None and (isinstance(n, bool) or int(n) != n or n < 0):
            raise ValueError(f"n must be a whole number of at least 0, received {n!r}")
        return self.draw(np.random.default_rng(random_state), None if n is None else int(n))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Ends of the central intervals that hold x with probability ``level``, entry by entry."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), received {level!r}")
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    @property
    def expected(self) -> Any:
        """E[T(x)] by name: ``mean()`` as a named tuple."""
        return self._expected_type(*self.mean())

    def inner(self, left: Sequence[FloatArray], right: Sequence[FloatArray]) -> FloatArray:
        """<left, right>, summed over the event axes and the natural parameters."""
        total: FloatArray = np.zeros(())
        for a, b, axes in zip(left, right, self.event_axes, strict=True):
            product = a * b
            total = total + (product.sum(axis=tuple(range(-axes, 0))) if axes else product)
        return total

    def log_pdf(self, x: Any) -> FloatArray:
        """log p(x) = log h(x) + <eta, T(x)> - A(eta)."""
        value = self.inner(self.natural, self.statistics(x)) - self.log_partition()
        return np.asarray(value + self.log_base_measure(x))

    def entropy(self) -> FloatArray:
        """H = A(eta) - <eta, mu> - E[log h(x)] = -A*(mu) - E[log h(x)]."""
        return (
            self.log_partition()
            - self.inner(self.natural, self.mean())
            - self.expected_log_base_measure()
        )

    def kl(self, other: Self) -> FloatArray:
        """KL(self || other) = A(eta') - A(eta) - <eta' - eta, mu>: the Bregman divergence of A."""
        difference = [b - a for a, b in zip(self.natural, other.natural, strict=True)]
        return other.log_partition() - self.log_partition() - self.inner(difference, self.mean())

    def replace(self, *natural: ArrayLike) -> Self:
        """A member of the same class with these natural parameters."""
        return type(self)(*natural)

    def step(self, direction: Sequence[ArrayLike], length: float = 1.0) -> Self:
        """The member at eta + length * direction."""
        return self.replace(
            *[a + length * np.asarray(b) for a, b in zip(self.natural, direction, strict=True)]
        )

    def pack(self) -> FloatArray:
        """The free natural parameters as one flat float64 vector (symmetric parts once)."""
        parts = []
        for array, axes in zip(self.natural, self.event_axes, strict=True):
            parts.append(pack_symmetric(array).ravel() if axes == MATRIX else array.ravel())
        return np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, vector: ArrayLike) -> Self:
        """The member packed in ``vector``, with the shapes of this one; inverse of ``pack``."""
        flat = np.asarray(vector, dtype=np.float64)
        if flat.shape != (self.packed_size,):
            raise ValueError(
                f"{type(self).__name__} with batch shape {self.batch_shape} unpacks "
                f"{self.packed_size} numbers, received shape {flat.shape}"
            )
        natural, at = [], 0
        for array, axes in zip(self.natural, self.event_axes, strict=True):
            if axes == MATRIX:
                p = array.shape[-1]
                shape = (*array.shape[:-2], p * (p + 1) // 2)
            else:
                shape = array.shape
            size = int(np.prod(shape))
            part = flat[at : at + size].reshape(shape)
            natural.append(unpack_symmetric(part) if axes == MATRIX else part)
            at += size
        return self.replace(*natural)

    @property
    def packed_size(self) -> int:
        """Length of ``pack()``."""
        size = 0
        for array, axes in zip(self.natural, self.event_axes, strict=True):
            p = array.shape[-1] if axes == MATRIX else 0
            size += (array.size // (p * p)) * (p * (p + 1) // 2) if p else array.size
        return size

    def block_slices(self) -> list[slice]:
        """Where each named block lies in the packed vector; a single family is one block."""
        return [slice(0, self.packed_size)]

    def distance(self, other: Self) -> float:
        """Largest relative difference of natural parameters, block by block."""
        mine, theirs = self.pack(), other.pack()
        return max(relative_norm(mine[b] - theirs[b], mine[b]) for b in self.block_slices())

    def __repr__(self) -> str:
        """The ordinary parameters; of an array of distributions also its shape."""
        if not np.all(self.in_domain()):
            return f"{type(self).__name__}(not proper, batch_shape={self.batch_shape})"
        inside = [f"{name}={_short(value)}" for name, value in self.parameters().items()]
        if self.batch_shape:
            inside.append(f"batch_shape={self.batch_shape}")
        return f"{type(self).__name__}({', '.join(inside)})"


def _short(value: FloatArray) -> str:
    """An array in a line."""
    return " ".join(np.array2string(value, precision=4, threshold=8, edgeitems=2).split())


def _natural_parameter(position: int, name: str) -> property:
    """Read access to one natural parameter under its name."""

    def read(self: Family) -> FloatArray:
        return self.natural[position]

    return property(read, doc=name)
