"""CoxRegression, stratified by site, decentralized."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dmfvi.families import MultivariateNormal
from dmfvi.inference.result import Inference, InferenceObserver
from dmfvi.linalg import FloatArray
from dmfvi.models.regression.base import agree_on_weighted_units
from dmfvi.models.regression.posterior import CoefficientPosterior
from dmfvi.models.survival.base import SurvivalRegression
from dmfvi.models.survival.model import CoxShard, StratifiedCox
from dmfvi.models.survival.times import check_pairs, checked_times, pair_of
from dmfvi.shard_lists import answering_sites
from dmfvi.summary_table import SummaryTable, rows_of
from dmfvi.validation import check_choice, is_shard_list

#: default prior precision of coefficients in agreed units
WEAK = 1.0


@dataclass(eq=False, repr=False)
class CoxRegression(SurvivalRegression):
    """Cox's proportional hazards, stratified by site: every site has its own baseline hazard, and all share the hazard ratios.

    The posterior is the Gaussian at the mode of the partial likelihood times the prior, the same at every node. A site sends sums over its
    own risk sets only.

    Parameters
    ----------
    ties : "efron" or "breslow"
        Approximation of the likelihood where events of a site happen at the same time.
    prior_precision : float, array (n_features,) or None
        Prior precision of the coefficients; None is 1 in standardised features. As good as zero, 1e-10 for example, gives the estimates of other programs.
    fit_intercept : bool
        Has no meaning here: an intercept is part of the baseline hazards.
    {table parameters}
    {shared parameters}

    Attributes
    ----------
    coef_ : array (n_features,)
        Posterior mode (and mean) of the log hazard ratios.
    coef_covariance_ : array (n_features, n_features)
        Posterior covariance.
    n_subjects_ : int
        Rows of all nodes whose weight is not zero.
    n_events_ : int
        Events of all nodes whose weight is not zero.
    {shared attributes}

    Notes
    -----
    ``lower_bound_`` is Laplace's approximation of the log evidence of the partial likelihood. Baseline hazards stay in the process that has the rows, and are
    not written into files.
    """

    _kept = ("_has_strata",)

    _: KW_ONLY
    ties: Literal["efron", "breslow"] = "efron"
    tol: float = 1e-9

    @staticmethod
    def _from_columns(  # type: ignore[override]
        time: FloatArray,
        event: FloatArray,
        weight: FloatArray | None = None,
        strata: FloatArray | None = None,
    ) -> dict[str, Any]:
        given = {"sample_weight": weight, "strata": strata}
        more = {name: value for name, value in given.items() if value is not None}
        return {"y": pair_of(time, event), **more}

    def fit(
        self,
        X: Any,
        y: Any = None,
        event: Any = None,
        *,
        time: Any = None,
        sample_weight: Any = None,
        strata: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n, D), times and events (n,), or to one array of each per site; each site is a stratum, also on one machine.

        y are the times (also as ``time=``) with ``event``, 1 where it happened and 0 where the time is censored; or both, as two columns (time, event)
        or as scikit-survival's structured array. ``strata`` are further strata inside sites, one label a row. Of frames they may be
        names of columns. One array is cut into as many sites as there are nodes.
        """
        check_choice("ties", self.ties, ["efron", "breslow"])
        session = self._exact_session()
        if session.whole and session.network.n_nodes > 1 and not is_shard_list(X):
            warnings.warn(
                f"one table is cut into {session.network.n_nodes} parts in the order of its rows, and each part has a baseline hazard of its own: pass one "
                "table per site, or PiecewiseExponentialRegression, whose answer is the same for any cut",
                UserWarning,
                stacklevel=2,
            )
        parts, weights, strata_here = self._subjects(
            X, y, event, time, session, weight=sample_weight, strata=strata
        )
        self._has_strata = strata is not None
        for _, pairs in parts:
            check_pairs(pairs, positive=False)
        if not self.n_events_:
            raise ValueError("no event at any node: nothing is known of the hazard ratios")
        weighted = [(x, w) for (x, _), w in zip(parts, weights, strict=True)]
        self._units = session.agree(lambda part: agree_on_weighted_units(*part), weighted)[0]
        self._warn_of_far_products()
        shards = [
            CoxShard.of(self._design(x), pairs[:, 0], pairs[:, 1], w, s)
            for (x, pairs), w, s in zip(parts, weights, strata_here, strict=True)
        ]
        self._fit(session, self._make_model(), shards, observer=observer)
        mean = self._belief.q.parameters()["mean"]
        self._baselines = {}
        listed = len({position for position, _ in self._stratum_keys}) > 1
        for node, shard in enumerate(shards):
            for number, curve in breslow(shard, mean).items():
                position, label = self._stratum_keys[number]
                self._baselines[position if listed else node, label] = curve
        return self

    @property
    def _has_intercept(self) -> bool:
        return False

    @property
    def _centred(self) -> bool:
        return True  # baseline hazards make up for it

    def _make_model(self) -> StratifiedCox:
        precision = self._coefficient_precision(self._units, WEAK)
        return StratifiedCox(np.zeros(len(precision)), precision, self.ties)

    def _keep_run(self, inference: Inference, log_volume: float) -> None:
        super()._keep_run(inference, log_volume)
        self.lower_bound_ = inference.beliefs[0].log_evidence

    def _in_data_units(self, q: MultivariateNormal) -> CoefficientPosterior:
        change = self._to_data()
        return CoefficientPosterior(q, change, np.zeros(len(change)))

    def _take(self, node: int) -> None:
        p = self.posterior_.parameters()
        self.coef_, self.coef_covariance_ = p["mean"], p["covariance"]

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """Log hazard ratios with central intervals, and hazard ratios."""
        names = self._names()
        rows = rows_of(
            names,
            self.coef_,
            np.sqrt(np.diag(self.coef_covariance_)),
            lambda size: float(ndtri(0.5 + 0.5 * size)),
            level,
            [True] * len(names),
        )
        inside = " and strata" if getattr(self, "_has_strata", False) else ""
        title = f"Cox regression, stratified by site{inside}, {self.ties} ties"
        return SummaryTable(title, self._facts(), level, "hazard ratio", rows)

    def _relative(self, X: Any) -> tuple[FloatArray, FloatArray]:
        design = self._design(self._checked_rows(X))
        p = self._belief.q.parameters()
        variance = np.einsum("ni,ij,nj->n", design, p["covariance"], design, optimize=True)
        return design @ p["mean"], np.maximum(variance, 0.0)

    @property
    def _sites_differ(self) -> bool:
        return len({position for position, _ in getattr(self, "_baselines", {})}) > 1

    @answering_sites
    def predict_survival_function(
        self, X: Any, times: ArrayLike, *, site: Any = None, stratum: Any = None
    ) -> FloatArray:
        """Probability to survive each time (n, n_times) with a site's Breslow baseline, at the posterior mean.

        ``site`` is one of this process's, as its rows were given, and may be None where there is one only; rows in a list are those of the sites, one
        after the other. ``stratum`` is the label of one of the strata inside it, and may be None where it has one only.
        """
        check_is_fitted(self)
        known = getattr(self, "_baselines", None)
        if known is None:
            raise ValueError("baseline hazards are not in files: fit the model where the rows are")
        sites = sorted({position for position, _ in known})
        if site is None and len(sites) == 1:
            site = sites[0]
        labels = [label for position, label in known if position == site]
        if not labels:
            if site is None:
                raise ValueError(
                    f"every site has a baseline hazard of its own: say whose with site=, one of {sites}"
                )
            raise ValueError(f"site {site!r} is none of this process's, which are {sites}")
        if stratum is None and len(labels) == 1:
            stratum = labels[0]
        if stratum not in labels:
            raise ValueError(
                f"stratum must be a label of one of site {site}'s strata, {labels[:20]}, received {stratum!r}"
            )
        asked = checked_times(times)
        steps, hazard = known[site, stratum]
        at = np.searchsorted(steps, asked, side="right")
        reached = np.append(0.0, hazard)[at]
        return np.asarray(np.exp(-np.exp(self.predict(X))[:, None] * reached))


def breslow(shard: CoxShard, theta: FloatArray) -> dict[int, tuple[FloatArray, FloatArray]]:
    """Event times and cumulative baseline hazard of each stratum, by its number (Breslow 1972)."""
    risk = shard.weight * np.exp(shard.design @ theta)
    counts = (shard.event > 0) & (shard.weight > 0)  # after the last weight nobody is at risk
    strata, first = np.unique(shard.stratum, return_index=True)
    made = {}
    for stratum, begin, end in zip(strata.tolist(), first, [*first[1:], len(risk)], strict=True):
        rows = slice(begin, end)
        happened = counts[rows][::-1]
        time, weight = shard.time[rows][::-1], shard.weight[rows][::-1]
        left = np.cumsum(risk[rows])[::-1]  # times fall in a shard
        steps, which = np.unique(time[happened], return_inverse=True)
        deaths = np.bincount(which, weight[happened], minlength=len(steps))
        at_risk = left[np.searchsorted(time, steps, side="left")]
        made[stratum] = (steps, np.cumsum(deaths / at_risk))
    return made
