"""PiecewiseExponentialRegression, decentralized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import generator_of
from dmfvi.inference.result import InferenceObserver
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.estimator import GlmEstimator
from dmfvi.models.regression.base import agree_on_weighted_units
from dmfvi.models.regression.columns import terms_named
from dmfvi.models.survival.base import SurvivalRegression
from dmfvi.models.survival.times import (
    agree_on_quantiles,
    check_pairs,
    checked_breakpoints,
    checked_times,
)
from dmfvi.summary_table import SummaryTable, rows_of
from dmfvi.validation import check_level, check_whole

#: draws of the posterior for survival curves
DRAWS = 1000
#: numbers in a table of draws, rows and times, at most
MOST_CELLS = 4_000_000


@dataclass(eq=False, repr=False)
class PiecewiseExponentialRegression(SurvivalRegression, GlmEstimator):  # type: ignore[misc]
    """Proportional hazards with a piecewise constant hazard: the pooled posterior at every node.

        hazard(t | x) = exp(a_k + x.w)  for t in the k-th interval

    It is a Poisson model of events in each interval with the time at risk as exposure (Holford 1980; Laird & Olivier 1981).

    Parameters
    ----------
    n_intervals : int
        Number of intervals, between quantiles of all nodes' event times, which count by their weights.
    breakpoints : array or None
        Times at which the hazard may change; None is the quantiles.
    time_varying : str or tuple of str
        Terms whose effect may be another in every interval.
    prior_precision : float, array, "learned" or None
        Prior precision of the coefficients, then of the intervals' log hazards relative to the first; None is 1 in standardised columns.
    intercept_precision : float or None
        Prior precision of the mean log hazard around that of all data; None is 0.01, 0 is a flat prior.
    fit_intercept : bool
        Must be True: the first interval's log hazard.
    {table parameters}
    {shared parameters}

    Attributes
    ----------
    coef_ : array
        Posterior mean of the log hazard ratios; an effect that varies has one for each interval.
    breakpoints_ : array (n_intervals - 1,)
        Times between the intervals.
    log_hazard_ : array (n_intervals,)
        Posterior mean of the log hazard in each interval where all covariates are zero.
    n_subjects_ : int
        Rows of all nodes whose weight is not zero.
    n_events_ : int
        Events of all nodes whose weight is not zero.
    {shared attributes}
    """

    family = "poisson"

    _: KW_ONLY
    n_intervals: int = 10
    breakpoints: ArrayLike | None = None
    time_varying: tuple[str, ...] = ()

    _kept = ("breakpoints_", "_base_terms", "_varying_shift")

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        event: Any = None,
        *,
        time: Any = None,
        sample_weight: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n, D), times and events (n,), split evenly over the nodes, or to one array of each per node.

        y are the times (also as ``time=``) with ``event``, 1 where it happened and 0 where the time is censored; or both, as two columns (time, event)
        or as scikit-survival's structured array. Of frames they may be names of columns.
        """
        self._check_settings()
        check_whole("n_intervals", self.n_intervals, 1)
        if not self.fit_intercept:
            raise ValueError("fit_intercept=False: a hazard cannot be zero in the first interval")
        session = self._exact_session()
        parts, weights, _ = self._subjects(X, y, event, time, session, weight=sample_weight)
        for _, pairs in parts:
            check_pairs(pairs, positive=True)
        if not self.n_events_:
            raise ValueError("no event at any node: nothing is known of the hazard")
        if self.breakpoints is None:
            count = int(self.n_intervals)
            weighted = [(pairs, w) for (_, pairs), w in zip(parts, weights, strict=True)]
            self.breakpoints_ = session.agree(
                lambda part: agree_on_quantiles(part[0], part[1], count), weighted
            )[0]
        else:
            self.breakpoints_ = checked_breakpoints(self.breakpoints)
        self._base_terms = self._terms_of(parts[0][0].shape[1])
        self._varying_shift = np.zeros(len(self._base_terms))
        if varying := self._varying():
            weighted_rows = [(x, w) for (x, _), w in zip(parts, weights, strict=True)]
            units = session.agree(lambda part: agree_on_weighted_units(*part), weighted_rows)[0]
            self._varying_shift[varying] = units.shift[varying]
        spread = [self._at_risk(*part, w) for part, w in zip(parts, weights, strict=True)]
        rows = {
            "exposure": [each[2] for each in spread],
            "sample_weight": [each[3] for each in spread],
        }
        return self._fit_shards(
            session, [each[0] for each in spread], [each[1] for each in spread], rows, observer
        )

    # -- subjects and intervals ---------------------------------------------------------------

    @property
    def _edges(self) -> FloatArray:
        return np.concatenate([[0.0], self.breakpoints_, [np.inf]])

    def _varying(self) -> list[int]:
        """Places of the terms whose effect varies."""
        return [self._base_terms.index(name) for name in self._time_varying]

    @property
    def _time_varying(self) -> list[str]:
        """The terms of ``time_varying``, also where one name was given as it is or a column stands for its levels."""
        given = self.time_varying
        wanted = (given,) if isinstance(given, str) else tuple(given)
        return terms_named(wanted, self._base_terms, "time_varying")

    def _at_risk(
        self, x: FloatArray, pairs: FloatArray, weight: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """One row for each subject and interval that it enters: design, events, time at risk, weights."""
        time, event = pairs[:, 0], pairs[:, 1]
        last = np.searchsorted(self.breakpoints_, time, side="left")
        subject = np.repeat(np.arange(len(time)), last + 1)
        interval = np.arange(len(subject)) - np.repeat(np.cumsum(last + 1) - last - 1, last + 1)
        edges = self._edges
        risk = np.minimum(time[subject], edges[interval + 1]) - edges[interval]
        happened = event[subject] * (interval == last[subject])
        return self._interval_rows(x[subject], interval), happened, risk, weight[subject]

    def _interval_rows(self, x: FloatArray, interval: NDArray[np.int64]) -> FloatArray:
        """Design of rows in intervals: covariates, those that vary once for each interval, indicators of all intervals but the first.

        Those that vary are centred first: an effect in one interval would else stand for the interval's hazard where a column is far from zero.
        """
        count = len(self.breakpoints_) + 1
        inside = (interval[:, None] == np.arange(count)).astype(np.float64)
        columns = []
        varying, centred = self._varying(), x - self._varying_shift
        for j in range(x.shape[1]):
            columns += [centred[:, j, None] * inside] if j in varying else [x[:, j, None]]
        return np.hstack([*columns, inside[:, 1:]])

    def _interval_names(self) -> list[str]:
        edges = [f"{edge:.6g}" for edge in self._edges]
        ends = [f"({a}, {b}]" for a, b in pairwise(edges[:-1])]
        return [*ends, f"({edges[-2]}, inf)"]

    def _names(self) -> list[str]:
        """Terms; one that varies once for each interval."""
        made = []
        # columns may get their names after the fit, as those of files do
        shown = self._terms_of(len(self._base_terms))
        for term, name in zip(self._base_terms, shown, strict=True):
            varies = term in self._time_varying
            made += [f"{name} {part}" for part in self._interval_names()] if varies else [name]
        return made

    def _take(self, node: int) -> None:
        super()._take(node)
        turn = self._shown_matrix()
        mean = np.append(self.coef_, self.intercept_)
        self._shown_mean = turn @ mean
        self._shown_covariance = turn @ self.coef_covariance_ @ turn.T
        size = len(self._names())
        self.coef_ = self._shown_mean[:size]
        self.coef_covariance_ = self._shown_covariance[:size, :size]
        self.log_hazard_ = self._shown_mean[size:]

    def _shown_matrix(self) -> FloatArray:
        """From (coefficients, relative log hazards, intercept) to (coefficients, log hazards)."""
        size, count = len(self._names()), len(self.breakpoints_) + 1
        turn = np.zeros((size + count, size + count))
        turn[:size, :size] = np.eye(size)
        turn[size:, -1] = 1.0
        turn[size + 1 :, size:-1] = np.eye(count - 1)
        at = 0
        for name, shift in zip(self._base_terms, self._varying_shift, strict=True):
            if name in self._time_varying:  # hazards are those where covariates are zero
                turn[size:, at : at + count] = -shift * np.eye(count)
                at += count - 1
            at += 1
        return turn

    # -- the table ----------------------------------------------------------------------------

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """Log hazard ratios with hazard ratios, and the log hazard in each interval, with central intervals."""
        names = self._names()
        hazards = [f"log hazard {part}" for part in self._interval_names()]
        rows = rows_of(
            [*names, *hazards],
            self._shown_mean,
            np.sqrt(np.diag(self._shown_covariance)),
            lambda size: float(ndtri(0.5 + 0.5 * size)),
            level,
            [True] * len(names) + [False] * len(hazards),
        )
        title = "Piecewise exponential regression"
        return SummaryTable(title, self._facts(), level, "hazard ratio", rows)

    # -- predictions --------------------------------------------------------------------------

    def _relative(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each row's log hazard relative to the mean row's, averaged over intervals."""
        x = self._checked_rows(X)
        shift = self._mean_row()
        count = len(self.breakpoints_) + 1
        gap: Any = 0.0
        for k in range(count):
            at = np.full(len(x), k)
            here = self._design(self._interval_rows(x, at))
            there = self._design(self._interval_rows(shift[None], at[:1]))
            gap = gap + (here - there) / count
        p = self._belief_normal.parameters()
        variance = np.einsum("ni,ij,nj->n", gap, p["covariance"], gap, optimize=True)
        return np.asarray(gap @ p["mean"]), np.maximum(variance, 0.0)

    def _mean_row(self) -> FloatArray:
        """Mean covariates over all rows at risk; those of a term that varies add up over the intervals."""
        count, at, made = len(self.breakpoints_) + 1, 0, []
        for name, shift in zip(self._base_terms, self._varying_shift, strict=True):
            width = count if name in self._time_varying else 1
            made.append(shift + self._units.shift[at : at + width].sum())
            at += width
        return np.array(made)

    def sample(self, X: Any, random_state: Any = None) -> FloatArray:  # type: ignore[override]
        """Times until the event for rows X from the posterior predictive distribution, the hazard after the last breakpoint going on."""
        check_is_fitted(self)
        x = self._checked_rows(X)
        rng = generator_of(random_state)
        theta = np.asarray(self._belief_normal.sample(rng, 1))
        rest, times = rng.exponential(size=len(x)), np.zeros(len(x))
        for low, high, rate in self._rates(x, theta):  # until the cumulative hazard is used up
            used = np.minimum(rest / rate[0], high - low)
            times += used
            rest = np.where(used < high - low, 0.0, rest - used * rate[0])
        return times

    def predict_cumulative_hazard(self, X: Any, times: ArrayLike) -> FloatArray:
        """Posterior mean of the cumulative hazard of each row at each time (n, n_times)."""
        return self._by_draws(X, times, lambda hazards: hazards.mean(0))

    def predict_survival_function(
        self, X: Any, times: ArrayLike, level: float | None = None
    ) -> Any:
        """Posterior mean of the probability to survive each time (n, n_times); with ``level`` the ends of its central interval."""
        if level is None:
            return self._by_draws(X, times, lambda hazards: np.exp(-hazards).mean(0))
        check_level(level)
        ends = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        found = self._by_draws(X, times, lambda hazards: np.quantile(np.exp(-hazards), ends, 0))
        return found[0], found[1]

    def _by_draws(
        self, X: Any, times: ArrayLike, answer: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """What ``answer`` makes of cumulative hazards under draws of the posterior (draws, n, n_times), for some rows at a time."""
        check_is_fitted(self)
        x = self._checked_rows(X)
        at = checked_times(times)
        theta = self._belief_normal.sample(generator_of(0), DRAWS)
        step = max(1, MOST_CELLS // (DRAWS * max(1, len(at))))
        parts = [
            answer(self._hazards(x[begin : begin + step], at, theta))
            for begin in range(0, len(x), step)
        ]
        return np.asarray(np.concatenate(parts, axis=-2))

    def _hazards(self, x: FloatArray, at: FloatArray, theta: FloatArray) -> FloatArray:
        """Cumulative hazards under draws of the posterior (draws, n, n_times)."""
        total = np.zeros((DRAWS, len(x), len(at)))
        for low, high, rate in self._rates(x, theta):
            risk = np.clip(at - low, 0.0, high - low)
            if risk.any():
                total += rate[:, :, None] * risk
        return total

    def _rates(self, x: FloatArray, theta: FloatArray) -> Iterator[tuple[float, float, FloatArray]]:
        """Each interval's ends, and hazards in it under draws of the posterior (draws, n)."""
        for k, (low, high) in enumerate(pairwise(self._edges.tolist())):
            design = self._design(self._interval_rows(x, np.full(len(x), k)))
            yield low, high, np.exp(self._target.shift + theta @ design.T)
