"""KaplanMeier, decentralized: the survival curve of all nodes' times on a grid that they agree on."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import NetworkEstimator
from dmfvi.extras import lacking
from dmfvi.families import Beta
from dmfvi.inference.result import InferenceObserver
from dmfvi.linalg import FloatArray
from dmfvi.models.survival.model import GridHazard, GridShard
from dmfvi.models.survival.times import (
    OCTAVES,
    PARTS,
    cells_of,
    check_pairs,
    checked_grid,
    checked_times,
    lower_edges,
    pair_of,
    pairs_of,
)
from dmfvi.validation import check_level, is_shard_list

#: where half survive: a product of many shares that is one half is not so to the last digit
HALF = 0.5 * (1.0 + 1e-12)


@dataclass(eq=False, repr=False)
class KaplanMeier(NetworkEstimator):
    """The product-limit estimate of the survival curve, with Greenwood's intervals on the log-log scale.

        S(t) = prod over times t_k <= t of (1 - events_k / at risk_k)

    Events and numbers at risk at each time of the grid are sums over the nodes. If the grid has all distinct times, it equals the
    Kaplan-Meier estimate to the last digit.

    Parameters
    ----------
    times : array or None
        The grid, to which times are rounded up; later ones count as censored at its end. None: times are rounded down to 256 steps for each doubling, by
        0.4 % at most (whole numbers up to 512 not at all), and the grid is those that some node has.
    {shared parameters}

    Attributes
    ----------
    timeline_ : array (n_times,)
        The grid.
    survival_function_ : array (n_times,)
        Estimated probability to survive each time.
    at_risk_ : array (n_times,)
        Number at risk just before each time, of all nodes.
    observed_ : array (n_times,)
        Events at each time.
    median_survival_time_ : float
        The first time at which no more than half survive; infinite where more do.
    {shared attributes}

    Notes
    -----
    The posterior is that of independent hazards on the grid with Beta(0.001, 0.001) priors; the curve and its intervals are from the counts alone.
    """

    _: KW_ONLY
    times: ArrayLike | None = None

    _kept = ("timeline_", "_grid_given")
    _has_features = False

    @staticmethod
    def _from_columns(
        time: FloatArray | None = None, event: FloatArray | None = None
    ) -> dict[str, Any]:
        if time is None and event is None:
            return {}  # the rows are the two columns
        if time is None or event is None:
            raise ValueError("a kaplan-meier needs time and event, one column each: name both")
        return {"X": pair_of(time, event)}

    def fit(
        self,
        X: Any,
        event: Any = None,
        *,
        time: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to times X (n,) with ``event`` (n,), to two columns (time, event), or to one of these per node.

        ``time`` and ``event`` may name columns of a frame X.
        """
        return self._fit_pairs(_two_columns(X, time, event), False, observer)

    def partial_fit(self, X: Any, event: Any = None, *, time: Any = None) -> Self:
        """Learn from one more batch, as for ``fit``: the curve is that of one fit to all times so far, of which only counts are kept.

        In a list some nodes may have no times in this batch.
        """
        if not hasattr(self, "_node_beliefs"):
            return self.fit(X, event, time=time)
        before = dict(self.__dict__)
        try:
            return self._fit_pairs(_two_columns(X, time, event), True, None)
        except BaseException:  # a batch that is refused changes nothing
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit_pairs(self, X: Any, more: bool, observer: InferenceObserver | None) -> Self:
        session = self._open()
        shards = self._row_shards(X, session, reset=not more)
        for pairs in shards:
            if pairs.shape[1] != 2:
                raise ValueError(
                    f"X must have two columns, time and event, received {pairs.shape[1]} columns: pass these two, or name them (time=, event=)"
                )
            check_pairs(pairs, positive=False)
        grid: FloatArray
        if self.times is None:
            grid = session.agree(agree_on_cells, [pairs[:, 0] for pairs in shards])[0]
        else:
            grid = checked_grid(self.times)
        earlier = None
        if more:  # every node adds its part of what all of them know
            given = self.times is not None
            # a given grid has no counts of what was later than its end
            if getattr(self, "_grid_given", given) == given and not given:
                grid = np.union1d(self.timeline_, grid)
            elif not given or not np.array_equal(self.timeline_, grid):
                raise ValueError(
                    "times are not those of the batches so far: give the same grid, or fit anew"
                )
            counts = _on_grid(grid, self.timeline_, self.observed_, self.at_risk_)
            earlier = (counts[0] / session.network.n_nodes, counts[1] / session.network.n_nodes)
        self.timeline_: FloatArray = grid
        self._grid_given = self.times is not None
        prepared = [
            GridShard(self._positions(pairs[:, 0]), pairs[:, 1], earlier) for pairs in shards
        ]
        return self._fit(session, self._make_model(), prepared, observer=observer)

    def _positions(self, times: FloatArray) -> NDArray[np.int64]:
        """Where times are on the grid; beyond its end where they are later."""
        rounded = lower_edges(cells_of(times)) if self.times is None else times
        return np.searchsorted(self.timeline_, rounded, side="left")

    def _make_model(self) -> GridHazard:
        return GridHazard(len(self.timeline_))

    def _in_data_units(self, q: Beta) -> Beta:
        return q

    def _take(self, node: int) -> None:
        prior = self._model.prior.parameters()
        p = self.posterior_.parameters()
        self.observed_ = np.rint(p["successes"] - prior["successes"])
        self.at_risk_ = self.observed_ + np.rint(p["failures"] - prior["failures"])
        share = np.divide(
            self.observed_, self.at_risk_, out=np.zeros(len(self.at_risk_)), where=self.at_risk_ > 0
        )
        self.survival_function_ = np.cumprod(1.0 - share)
        below = np.flatnonzero(self.survival_function_ <= HALF)
        self.median_survival_time_ = float(self.timeline_[below[0]]) if len(below) else np.inf

    def confidence_interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Ends of intervals at each time, log(-log S) with Greenwood's variance."""
        check_is_fitted(self)
        check_level(level)
        d, n, s = self.observed_, self.at_risk_, self.survival_function_
        some = (d > 0) & (n > d)
        term = np.zeros(len(d))
        term[some] = d[some] / (n[some] * (n[some] - d[some]))
        inside = (s > 0) & (s < 1)
        log_s = np.log(np.where(inside, s, 0.5))
        reach = ndtri(0.5 + 0.5 * level) * np.sqrt(np.cumsum(term)) / -log_s
        low, high = np.exp(log_s * np.exp(reach)), np.exp(log_s * np.exp(-reach))
        return np.where(inside, low, s), np.where(inside, high, s)

    def predict(self, X: Any) -> FloatArray:
        """Probability to survive each time; of two columns the first is the time."""
        check_is_fitted(self)
        at = checked_times(X) if np.ndim(X) == 1 else checked_times(self._checked_rows(X)[:, 0])
        # a time between two of the grid's has passed the first of them only
        position = np.searchsorted(self.timeline_, at, side="right")
        return np.append(1.0, self.survival_function_)[position]

    def summary(self, level: float = 0.9) -> str:
        """Numbers at risk, median, and how the fit went."""
        check_is_fitted(self)
        low, high = self.confidence_interval(level)
        ends = [self.timeline_[np.flatnonzero(curve <= 0.5)[:1]] for curve in (low, high)]
        shown = [f"{end[0]:.6g}" if len(end) else "inf" for end in ends]
        sites = getattr(self, "consensus_", {}).get("nodes", 1)
        lines = [
            "Kaplan-Meier estimate",
            f"n {self.at_risk_[0]:.0f}, events {self.observed_.sum():.0f}, sites {sites}",
            f"median survival time {self.median_survival_time_:.6g} ({100 * level:g} % interval {shown[0]} to {shown[1]})",
        ]
        return "\n".join([*lines, self._run_words()])

    def summary_frame(self, level: float = 0.9) -> Any:
        """The curve as a pandas DataFrame: at each time the number at risk, events, and the survival with its interval."""
        check_is_fitted(self)
        try:
            import pandas
        except ImportError as error:
            raise lacking("a frame", "pandas", "pandas") from error
        low, high = self.confidence_interval(level)
        columns = {
            "time": self.timeline_,
            "at_risk": self.at_risk_,
            "events": self.observed_,
            "survival": self.survival_function_,
            "lower": low,
            "upper": high,
        }
        return pandas.DataFrame(columns).set_index("time")

    def plot(self, ax: Any = None, level: float = 0.9) -> Any:
        """Draw the curve with its intervals; returns the matplotlib Axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots()[1] if ax is None else ax
        low, high = (np.append(1.0, curve) for curve in self.confidence_interval(level))
        at = np.append(0.0, self.timeline_)
        axes.step(at, np.append(1.0, self.survival_function_), where="post")
        axes.fill_between(at, low, high, step="post", alpha=0.2)
        axes.set_xlabel("time")
        axes.set_ylabel("probability to survive")
        axes.set_ylim(0.0, 1.02)
        return axes


def agree_on_cells(times: FloatArray) -> Generator[FloatArray, FloatArray, FloatArray]:
    """Left ends of the cells in which some node has a time: two sums of counts."""
    cells = cells_of(times)
    total = yield np.bincount(cells // PARTS, minlength=2 * OCTAVES + 1).astype(np.float64)
    used = np.flatnonzero(np.rint(total) > 0)
    own = np.zeros((len(used), PARTS))
    np.add.at(own, (np.searchsorted(used, cells // PARTS), cells % PARTS), 1.0)
    counts = np.rint((yield own.ravel()))
    every = (used[:, None] * PARTS + np.arange(PARTS)).ravel()
    return lower_edges(every[counts > 0])


def _on_grid(
    grid: FloatArray, times: FloatArray, events: FloatArray, at_risk: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Counts of a grid at the times of one that has all of its times and more."""
    if len(grid) == len(times):
        return events, at_risk
    happened = np.zeros(len(grid))
    happened[np.searchsorted(grid, times)] = events
    # who is at risk between two times of the earlier grid is so at the second
    return happened, np.append(at_risk, 0.0)[np.searchsorted(times, grid)]


def _two_columns(X: Any, time: Any, event: Any) -> Any:
    """Times and events in two columns, a list where X is one."""
    if time is not None:
        return pairs_of(X, time, event)[0]
    if isinstance(X, np.ndarray) and X.dtype.names is not None:
        return pair_of(X, event)
    several = isinstance(X, list | tuple) and len(X) > 0 and not is_shard_list(X)
    if event is None:
        if several and all(getattr(part, "dtype", None) is not None for part in X):
            named = [getattr(part.dtype, "names", None) is not None for part in X]
            return [pair_of(part, None) for part in X] if all(named) else X
        return X
    if several and all(np.ndim(part) == 1 for part in X):
        return [
            pair_of(t, e, f"shard {i}: ") for i, (t, e) in enumerate(zip(X, event, strict=True))
        ]
    return pair_of(X, event)
