"""Uncertainty of fitted quantities: ``estimator.uncertainty`` and what it returns."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri
from sklearn.utils.validation import check_is_fitted

from dmfvi.inference.model import Model
from dmfvi.inference.response import MAX_SUMS, Quantities, Response, linear_response
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

#: where the entries of a quantity lie
Support = Literal["real", "positive", "probability", "covariance"]
#: of quantities by name; others are real
SUPPORTS: Mapping[str, Support] = {
    "noise": "positive",
    "noise_precision": "positive",
    "covariance": "covariance",
    "covariances": "covariance",
    "weights": "probability",
    "transitions": "probability",
    "emissions": "probability",
    "topics": "probability",
}
#: numbers of a quantity that a file keeps with their covariance, at most
MOST_KEPT = 100
#: least count of the Beta distribution of a probability: its deviation can be as large as that of 0 and 1
LEAST_COUNT = 1e-3
#: optima whose bounds differ by less are about as probable as each other: a Bayes factor of 20
CLOSE_BOUND = 3.0
#: fits to one optimum differ by less, whatever ``tol``
SAME_OPTIMUM = 1e-2
#: rows of a table in a notebook at most
MOST_ROWS = 60


@dataclass(frozen=True)
class Uncertainty:
    """A quantity with its uncertainty.

    Attributes
    ----------
    mean : array
        Posterior expectation, in the quantity's shape.
    covariance : array (r, r)
        Of the quantity's r entries, in C order.
    level : float
        Of ``interval``.
    method : str
        "linear-response" or "mean-field".
    response : Response or None
        How it was found: number of sums, residual, and both covariances. None of a model from a file.
    notes : tuple of str
        Why intervals are not to be trusted, where there is a reason.
    support : {"real", "positive", "probability", "covariance"}
        Where the entries lie; of a covariance the diagonal is positive. Intervals stay inside.
    """

    mean: FloatArray
    covariance: FloatArray
    level: float
    method: str
    response: Response | None
    notes: tuple[str, ...] = ()
    support: Support = "real"

    @property
    def std(self) -> FloatArray:
        """Standard deviations, in the quantity's shape."""
        variances = np.maximum(np.diagonal(self.covariance), 0.0)
        return np.asarray(np.sqrt(variances)).reshape(self.mean.shape)

    @property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the interval of that level: normal for what is real and for the logarithm of what is
        positive (the delta method); of a probability quantiles of the Beta distribution with its mean and deviation.
        """
        mean, half = self.mean, float(ndtri(0.5 + 0.5 * self.level)) * self.std
        if self.support == "probability":
            return _beta_interval(mean, self.std, self.level)
        positive = np.zeros(mean.shape, dtype=bool)
        if self.support == "positive":
            positive = mean > 0
        elif self.support == "covariance" and mean.ndim >= 2 and mean.shape[-1] == mean.shape[-2]:
            positive = np.broadcast_to(np.eye(mean.shape[-1], dtype=bool), mean.shape) & (mean > 0)
        factor = np.exp(
            half / np.where(positive, mean, 1.0), where=positive, out=np.ones(mean.shape)
        )
        low = np.where(positive, mean / factor, mean - half)
        return low, np.where(positive, mean * factor, mean + half)

    def sample(self, n: int, random_state: int | None = None) -> FloatArray:
        """Draws from the normal distribution with this mean and covariance, (n, ...)."""
        rng = np.random.default_rng(random_state)
        draws = rng.multivariate_normal(self.mean.ravel(), self.covariance, size=n, method="eigh")
        return draws.reshape(n, *self.mean.shape)

    def __repr__(self) -> str:
        with np.printoptions(precision=4, threshold=20):
            return f"Uncertainty(mean={self.mean}, std={self.std}, method={self.method!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: one row for each number, and what speaks against trusting them."""
        low, high = self.interval
        columns = [np.ravel(each) for each in (self.mean, self.std, low, high)]
        positions = list(np.ndindex(self.mean.shape))
        rows = [
            f"<tr><th>{', '.join(map(str, position))}</th>"
            + "".join(f"<td>{column[k]:.4g}</td>" for column in columns)
            + "</tr>"
            for k, position in enumerate(positions[:MOST_ROWS])
        ]
        if len(positions) > MOST_ROWS:
            rows.append(f"<tr><td colspan=5>and {len(positions) - MOST_ROWS} more</td></tr>")
        head = f"<tr><th></th><th>mean</th><th>std</th><th colspan=2>{self.level:.0%} interval</th></tr>"
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table>{head}{''.join(rows)}</table><p>{escape(self.method)}</p>{notes}"


def _beta_interval(
    mean: FloatArray, std: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Central interval of Beta(c m, c (1 - m)), c = m (1 - m) / variance - 1: exact where probabilities are a Dirichlet's.

    It is widened to contain the mean and, away from the nearer of 0 and 1, the normal interval: a Beta with nearly all of its
    mass at 0 has an upper end that falls as its deviation grows. A deviation that no probability can have gives [0, 1].
    """
    half = float(ndtri(0.5 + 0.5 * level)) * std
    low, high = np.maximum(0.0, mean - half), np.minimum(1.0, mean + half)
    impossible = std**2 >= mean * (1.0 - mean)
    known = (std > 0) & ~impossible
    m, spread = np.where(known, mean, 0.5), np.where(known, std, 0.1)
    count = np.maximum(m * (1.0 - m) / spread**2 - 1.0, LEAST_COUNT)
    lower, upper = (
        betaincinv(count * m, count * (1.0 - m), tail)
        for tail in (0.5 - 0.5 * level, 0.5 + 0.5 * level)
    )
    lower = np.minimum(np.where(m > 0.5, np.minimum(lower, low), lower), mean)
    upper = np.maximum(np.where(m < 0.5, np.maximum(upper, high), upper), mean)
    inside = (mean > 0) & (mean < 1)
    low = np.where(known, lower, np.where(impossible & inside, 0.0, low))
    high = np.where(known, upper, np.where(impossible & inside, 1.0, high))
    return low, high


@stored_as("known-quantity")
@dataclass(frozen=True)
class KnownQuantity:
    """What a file keeps of a quantity whose uncertainty was found by linear response."""

    mean: FloatArray
    covariance: FloatArray
    notes: tuple[str, ...]
    support: str

    @classmethod
    def of(cls, found: Uncertainty) -> KnownQuantity:
        """Without how it was found."""
        return cls(found.mean, found.covariance, found.notes, found.support)

    def at(self, level: float) -> Uncertainty:
        """With intervals of that level."""
        support: Any = self.support
        notes = tuple(self.notes)
        return Uncertainty(
            self.mean, self.covariance, level, "linear-response", None, notes, support
        )


def check_asked(estimator: Any, method: str, level: float) -> None:
    """Refuse what ``uncertainty`` cannot be asked for."""
    check_is_fitted(estimator)
    if estimator._no_response:
        raise ValueError(
            f"{type(estimator).__name__} has no uncertainty(): {estimator._no_response}"
        )
    if method not in ("linear-response", "mean-field"):
        raise ValueError(f"method must be 'linear-response' or 'mean-field', received {method!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, received {level!r}")


@dataclass(frozen=True)
class Context:
    """What linear response needs of a fit; it belongs to the process and is not kept in files."""

    session: Session
    model: Model
    shards: Sequence[Any]
    #: what was asked for by name, so that it is found once: by quantity, method and node
    found: dict[tuple[str, str, int], Uncertainty] = field(default_factory=dict)


class UncertaintyMixin:
    """``uncertainty`` of a fitted estimator."""

    #: what ``uncertainty`` can be asked for by name: a fitted attribute, or a function of the fitted estimator
    _uncertain: ClassVar[Mapping[str, str | Callable[[Any], ArrayLike]]] = {}
    #: those of them that ``summary`` has a table of
    _summarised: ClassVar[tuple[str, ...]] = ()
    #: why an estimator has none, and what to use otherwise
    _no_response: ClassVar[str] = ""
    _context: Context | None
    _model: Any
    _belief: Any
    lower_bound_: float
    _other_bounds: list[float]
    _node_beliefs: list[Any]
    node_posteriors_: list[Any]
    _shown: int
    #: by name, those that were asked for; a file keeps them
    _quantities: dict[str, KnownQuantity]

    def _in_data_units(self, posterior: Any) -> Any:
        """A node's posterior in the data's units."""
        return posterior

    @abstractmethod
    def _show(self, node: int) -> None:
        """Set the fitted attributes from a node's posterior."""

    def uncertainty(
        self,
        quantity: str | Callable[[Any], ArrayLike],
        *,
        method: Literal["linear-response", "mean-field"] = "linear-response",
        level: float = 0.9,
    ) -> Uncertainty:
        """Mean, deviation, interval and covariance of a fitted quantity.

        Mean field makes the variances of parameters too small; linear response corrects them, by some more sums of
        the same statistics (docs/uncertainty.md). It needs the data, so that it can be asked for in the process of the
        fit only; where nodes run in processes of their own, all must ask for it.

        Parameters
        ----------
        quantity : str or callable
            A name of ``uncertain_quantities``, or a function of the fitted estimator that returns an array.
        method : {"linear-response", "mean-field"}
            "mean-field" is what the fitted posterior itself says.
        level : float
            Of the interval, between 0 and 1.
        """
        check_asked(self, method, level)
        made = self._kept_or_found(quantity, method, level)
        for note in made.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        return made

    def _kept_or_found(
        self, quantity: str | Callable[[Any], ArrayLike], method: str, level: float
    ) -> Uncertainty:
        """Once for each name and method; a file knows what was asked for before it was written."""
        if not isinstance(quantity, str):
            return self._found(quantity, method, level, self._known_context())
        kept = getattr(self, "_quantities", {})
        from_file = getattr(self, "_context", None) is None
        if from_file and method == "linear-response" and quantity in kept:
            return kept[quantity].at(level)
        context = self._known_context()
        key = (quantity, method, self._shown)
        if key in context.found:
            return replace(context.found[key], level=level)
        made = context.found[key] = self._found(quantity, method, level, context)
        if method == "linear-response" and made.mean.size <= MOST_KEPT:
            self._quantities = {**kept, quantity: KnownQuantity.of(made)}
        return made

    def _can_tell(self, name: str) -> bool:
        """Whether a quantity is kept or can be found; True also where nothing is known, so that asking says why."""
        kept = getattr(self, "_quantities", {})
        return getattr(self, "_context", None) is not None or name in kept or not kept

    def _found(
        self,
        quantity: str | Callable[[Any], ArrayLike],
        method: str,
        level: float,
        context: Context,
    ) -> Uncertainty:
        """The uncertainty of a quantity, by sums over the nodes."""
        read = quantity if callable(quantity) else self._reader_of(quantity)

        def values(belief: Any) -> FloatArray:
            return np.asarray(read(self._seen_with(belief)), dtype=np.float64).ravel()

        model, belief = context.model.for_response(), self._belief
        if not np.isfinite(values(belief)).all():
            raise ValueError(
                f"the quantity must be finite at the fitted posterior, received {values(belief)[:5]}"
            )
        tilts = model.named_tilts(belief, quantity) if isinstance(quantity, str) else None
        quantities = Quantities(model.tilts(belief, values) if tilts is None else tilts, values)
        found = linear_response(
            context.session,
            context.model,
            context.shards,
            self._node_beliefs,
            quantities,
            MAX_SUMS if method == "linear-response" else 0,
        )
        shape = np.shape(read(self._seen_with(belief)))
        covariance = (
            found.covariance if method == "linear-response" else found.mean_field_covariance
        )
        notes = tuple(self._doubts())
        if callable(quantity) and not np.any(found.mean_field_covariance):
            notes += (
                "the function's value does not depend on the posterior, so that its deviation is 0: read everything from "
                "the estimator that it is given, as lambda fitted: fitted.means_[0]",
            )
        support = SUPPORTS.get(quantity, "real") if isinstance(quantity, str) else "real"
        return Uncertainty(
            found.mean.reshape(shape), covariance, level, method, found, notes, support
        )

    def _known_context(self) -> Context:
        context = getattr(self, "_context", None)
        if context is None:
            raise ValueError(
                f"the uncertainty of this {type(self).__name__} is not known here: it was loaded from a file, fitted in "
                "batches, or its statistics do not follow from its belief alone (the table of a regression, summary(), has right "
                "deviations already); fit it to all data in this process"
            )
        return context

    def _doubts(self) -> Iterable[str]:
        """Why intervals are not to be trusted, whatever the method, in plain words."""
        if not getattr(self, "converged_", True):
            yield "the fit has not converged: its uncertainty is that of no posterior"
        others = getattr(self, "_other_bounds", [])
        gaps = [self.lower_bound_ - bound for bound in others]
        close = [gap for gap in gaps if SAME_OPTIMUM < gap < CLOSE_BOUND]
        if close:
            yield (
                f"{len(close)} of {len(others) + 1} starts ended in other optima, whose bounds are only {min(close):.2g} lower: intervals are "
                "those of one optimum, and the data hardly say which of them is right"
            )

    @property
    def uncertain_quantities(self) -> tuple[str, ...]:
        """Names that ``uncertainty`` takes."""
        return tuple(self._uncertain)

    def _reader_of(self, name: str) -> Callable[[Any], Any]:
        if name not in self._uncertain:
            raise ValueError(
                f"{type(self).__name__} has no uncertainty of {name!r}, it has {sorted(self._uncertain)}: name one, or pass "
                "a function of the fitted estimator"
            )
        found = self._uncertain[name]
        return found if callable(found) else lambda fitted: getattr(fitted, found)

    def _seen_with(self, belief: Any) -> Self:
        """This estimator as if the fit had ended with that belief."""
        seen = copy.copy(self)
        seen._node_beliefs = [belief]
        seen.node_posteriors_ = [self._in_data_units(self._model.posterior(belief))]
        seen._show(0)
        return seen
