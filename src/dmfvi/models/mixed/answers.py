"""What a fitted mixed model says: its table, predictions for groups that are not known, and effects of those that are."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.estimator import ratio_of
from dmfvi.models.glm.targets import (
    LINKS,
    Targets,
    TargetUnits,
    check_targets,
    check_trials,
    expected_response,
    response,
)
from dmfvi.models.mixed.model import DISPERSED, FAMILIES
from dmfvi.models.mixed.new_groups import new_group_quantiles
from dmfvi.models.mixed.shared_labels import CommonLabels
from dmfvi.models.regression.base import Regression
from dmfvi.models.regression.labels import labels_of
from dmfvi.shard_lists import answering_sites, joined
from dmfvi.summary_table import Row, SummaryTable, rows_of
from dmfvi.validation import check_level

LINK = {family: LINKS[family][0] for family in FAMILIES}
#: draws for intervals of variance components
DRAWS = 4000


class MixedAnswers(Regression):
    """Answers of a fitted mixed model; the estimator says how it is fitted."""

    family: str
    n_groups_: int
    n_effective_draws_: float
    coef_: FloatArray
    intercept_: float
    coef_covariance_: FloatArray
    _target: TargetUnits
    _varies: list[int]
    _common: CommonLabels
    _group_keys: list[Any]
    #: whether groups are those of a site, and their keys pairs (site, label)
    _apart = False

    @property
    def _fitted_family(self) -> str:
        """That of the fit, whatever the parameter is now."""
        return str(self._model.family)

    def _offset(self, given: dict[str, FloatArray], n: int) -> FloatArray:
        """Known parts of linear predictors."""
        raise NotImplementedError

    def _varying(self, design: FloatArray) -> FloatArray:
        """Columns whose coefficients differ from group to group."""
        raise NotImplementedError

    def _effect_units(self) -> FloatArray:
        """T: effects in the data's units, the intercept's at covariates of zero, are T times those in agreed units."""
        units, scale = self._units, self._target.scale
        size = 1 + len(self._varies)
        turn = np.zeros((size, size))
        turn[0, 0] = scale
        for k, j in enumerate(self._varies, 1):
            turn[k, k] = scale / units.scale[j]
            if self._centred:
                turn[0, k] = -scale * units.shift[j] / units.scale[j]
        return turn

    def _deviations(self) -> FloatArray:
        """Draws of the effects' deviations in the data's units (draws, effects)."""
        belief = self._model.posterior(self._belief)
        turn = self._effect_units()
        draws = belief.sample(np.random.default_rng(0), DRAWS)
        return np.array(
            [np.sqrt(np.square(turn @ self._model.factor(theta)).sum(1)) for theta in draws]
        )

    @property
    def _effect_names(self) -> list[str]:
        """What differs from group to group."""
        names = self._names()
        return ["Intercept", *(names[position] for position in self._varies)]

    def _correlations(self) -> list[tuple[str, FloatArray]]:
        """Draws of the effects' correlations in the data's units."""
        belief, turn = self._model.posterior(self._belief), self._effect_units()
        draws = belief.sample(np.random.default_rng(0), DRAWS)
        roots = np.array([turn @ self._model.factor(theta) for theta in draws])
        roots /= np.sqrt(np.square(roots).sum(-1, keepdims=True))
        return [
            (
                f"correlation of {one} and {other} by group",
                np.einsum("ni,ni->n", roots[:, a], roots[:, b]),
            )
            for (a, one), (b, other) in combinations(enumerate(self._effect_names), 2)
        ]

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        """Coefficients, deviations of the groups' effects, and noise variance or dispersion."""
        posterior, size = self.posterior_, len(self._names())
        theta = np.asarray(posterior.agreed.sample(rng, n_draws))
        values = theta @ posterior.matrix.T + posterior.shift
        found = {"coef": values[:, :size]}
        if self._has_intercept:
            found["intercept"] = values[:, size]
        turn = self._effect_units()
        factors = np.array([self._model.factor(each) for each in theta])
        found["effects_std"] = np.sqrt(np.square(turn @ factors).sum(-1))
        if self._fitted_family in DISPERSED:
            name = "noise_variance" if self._fitted_family == "gaussian" else "dispersion"
            found[name] = np.exp(values[:, size + int(self._has_intercept)])
        return found

    # -- the table ----------------------------------------------------------------------------

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """Coefficients, then deviations of the groups' effects and of the noise, with central intervals."""
        names = self._names() + (["Intercept"] if self._has_intercept else [])
        mean = np.append(self.coef_, self.intercept_)[: len(names)]
        ratio = ratio_of(self._fitted_family, LINK[self._fitted_family])
        rows = rows_of(
            names,
            mean,
            np.sqrt(np.diag(self.coef_covariance_)),
            lambda size: float(ndtri(0.5 + 0.5 * size)),
            level,
            [bool(ratio)] * len(names),
        )
        ends = [0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level]
        draws = [*self._deviations().T]
        labels = [f"sd of {name} by group" for name in self._effect_names]
        for label, correlation in self._correlations():
            labels.append(label)
            draws.append(correlation)
        if self._fitted_family in DISPERSED:
            p = self.posterior_.parameters()
            at = len(names)
            z = np.random.default_rng(0).standard_normal(DRAWS)
            psi = p["mean"][at] + np.sqrt(p["covariance"][at, at]) * z
            gaussian = self._fitted_family == "gaussian"
            draws.append(np.exp(0.5 * psi if gaussian else psi))
            labels.append("sd of noise" if gaussian else "dispersion")
        for label, values in zip(labels, draws, strict=True):
            low, middle, high = (float(v) for v in np.quantile(values, ends))
            rows.append(Row(label, middle, float(values.std()), low, high, None, None, None))
        title = f"{self._fitted_family} mixed model, {LINK[self._fitted_family]} link"
        facts = self._facts()
        by_site = getattr(self, "_groups_are_sites", False) and self.n_groups_ > 1
        which = ", the sites" if by_site else ""
        facts.insert(1, ("groups", f"{self.n_groups_}{which}"))
        if self._fitted_family == "bernoulli":
            facts.insert(2, self._modelled(1))
        exact = self._belief.evidence is not None  # too few draws leave the Gaussian at the mode
        kind = "with the mean and covariance of the posterior" if exact else "at the mode"
        facts.append(("approximation", f"Gaussian {kind}"))
        return SummaryTable(title, facts, level, ratio, rows)

    # -- predictions --------------------------------------------------------------------------

    def _predictor(
        self, X: Any, offset: Any, exposure: Any
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of each row's linear predictor, its variance by the coefficients, and by a new group's effects."""
        rows = self._checked_rows(X)
        design, (shift, scale, _) = self._design(rows), self._target
        p = self._model.posterior(self._belief).parameters()
        size = design.shape[1]
        mean = shift + scale * (design @ p["mean"][:size])
        own = np.einsum("ni,ij,nj->n", design, p["covariance"][:size, :size], design, optimize=True)
        effects = self._varying(design) @ self._model.factor(p["mean"])
        given = {"offset": offset, "exposure": exposure}
        known = {n: self._row_values(n, v, X, [rows])[0] for n, v in given.items() if v is not None}
        spread = scale**2 * np.square(effects).sum(1)
        return mean + self._offset(known, len(rows)), scale**2 * np.maximum(own, 0.0), spread

    @property
    def _sites_differ(self) -> bool:
        known = getattr(self, "_effects", [])
        return self._apart and len({key[0] for each in known for key in each}) > 1

    @answering_sites
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        groups: Any = None,
        site: Any = None,
        offset: Any = None,
        exposure: Any = None,
    ) -> Any:
        """Expected targets (bernoulli, binomial: the probability of 1).

        Without ``groups`` they are those in a group that is not known, averaged over groups and coefficients. Groups are those of the effects' median
        deviations: averaged over these, too, a log link's expectation would be infinite. With ``return_std`` also the posterior deviation of
        the expected target.

        With ``groups``, one label a row or the name of a column, rows of the groups of a ``site`` of this process have those groups' effects
        (``random_effects``) and coefficients at their means, as predictions of lme4 have; rows of other groups are answered as without.
        """
        mean, own, groups_own = self._predictor(X, offset, exposure)
        link = LINK[self._fitted_family]
        expected = expected_response(link, mean, own + groups_own)
        if groups is not None:
            if return_std:
                raise ValueError(
                    "return_std is for groups that are not known: leave out groups, or return_std"
                )
            known, effect = self._effects_at(X, groups, site)
            expected = np.where(known, response(link, mean + effect), expected)
        if not return_std:
            return expected
        ends = [expected_response(link, mean + s * np.sqrt(own), groups_own) for s in (-1.0, 1.0)]
        return expected, 0.5 * (ends[1] - ends[0])

    def _effects_at(self, X: Any, groups: Any, site: Any) -> tuple[NDArray[np.bool_], FloatArray]:
        """Which rows are of a site's groups, and what these add to their linear predictors."""
        labels, _ = labels_of(X, groups, "groups")
        if self._apart and site is None:
            sites = {key[0] for key in self.random_effects()}
            if len(sites) > 1:
                raise ValueError(
                    "equal labels of two sites are two groups: say whose these are with site="
                )
            (site,) = sites
        effects = self.random_effects(site)
        by_label = {(key[1] if self._apart else key): value for key, value in effects.items()}
        rows = self._checked_rows(X)[:, self._varies]
        known = np.array([label in by_label for label in labels.tolist()], dtype=bool)
        none = np.zeros(1 + rows.shape[1])
        found = np.array([by_label.get(label, none) for label in labels.tolist()])
        return known, found[:, 0] + np.einsum("ni,ni->n", found[:, 1:], rows)

    def predict_interval(
        self, X: Any, level: float = 0.9, *, offset: Any = None, exposure: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of central intervals of a new group's expected target: coefficients, effects' deviations and the group's effects are uncertain."""
        check_level(level)
        mean = self._predictor(X, offset, exposure)[0]
        design, scale = self._design(self._checked_rows(X)), self._target.scale
        link, ends = LINK[self._fitted_family], [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        gaps = new_group_quantiles(self._model, self._belief.q, design, self._varying(design), ends)
        return response(link, mean + scale * gaps[0]), response(link, mean + scale * gaps[1])

    def random_effects(self, site: int | None = None) -> dict[Any, FloatArray]:
        """Posterior means of the effects (intercept at covariates of zero, slopes) of groups, shrunken to zero, at the mode.

        Groups are those of one ``site`` of this process, or of all of them. Keys are the labels with their own type; with ``nested`` and a list of sites, pairs (site, label). Effects are in the process that has the
        rows, and in no file.
        """
        check_is_fitted(self)
        known = getattr(self, "_effects", None)
        if known is None:
            raise ValueError("effects of groups are not in files: fit the model where the rows are")
        everywhere = {label: effect for each in known for label, effect in each.items()}
        if site is None:
            return everywhere
        if self._apart:
            own = {key: effect for key, effect in everywhere.items() if key[0] == site}
            if not own:
                sites = sorted({key[0] for key in everywhere})
                raise ValueError(f"site must be one of {sites}, received {site!r}")
            return own
        if not 0 <= site < len(known):
            raise ValueError(f"site must be below {len(known)}, received {site}")
        return dict(known[site])

    def _shared_numbers(self, position: int, group: NDArray[Any]) -> NDArray[np.int64]:
        """The common number of each of a site's groups, in their order here; -1 of those that no other site has."""
        known = self._common.numbers[position] if self._common.n_shared else {}
        return np.array([known.get(self._group_keys[mark], -1) for mark in np.unique(group)])

    def _effects_of(
        self,
        session: Session,
        shards: list[Any],
        parts: list[tuple[FloatArray, Targets, NDArray[Any]]],
    ) -> list[dict[Any, FloatArray]]:
        model = self._model
        theta = model.posterior(self._belief).parameters()["mean"]
        turn, made = self._effect_units(), []
        common: list[FloatArray] = [np.zeros((0, len(turn)))] * len(shards)
        if self._common.n_shared:
            common = session.agree(lambda shard: model.agreed_effects(shard, theta), shards)
        for position, (shard, (_, _, group)) in enumerate(zip(shards, parts, strict=True)):
            keys, numbers = np.unique(group), self._shared_numbers(position, group)
            effects = (
                common[position][numbers]
                if self._common.n_shared
                else np.empty((len(keys), len(turn)))
            )
            only = shard.alone if self._common.n_shared else shard
            effects[numbers < 0] = model.expand_with_effects(only, theta)[1]
            names = [self._group_keys[mark] for mark in keys]
            made.append(dict(zip(names, effects @ turn.T, strict=True)))
        return made

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> float:
        """R^2 of expected targets in groups that are not known (binomial: of y / trials where there are any); y may be in the formula."""
        from sklearn.metrics import r2_score  # 10 MB that a fit does not need

        given = {"offset": offset, "exposure": exposure, "trials": trials}
        X, y, given = self._scorable(X, y, given)
        trials = given.pop("trials")
        expected = joined(self.predict(X, **given))
        target = column_or_1d(self._scored(X, y))
        if (self._fitted_family == "binomial") != (trials is not None):
            needs = "needs trials" if self._fitted_family == "binomial" else "takes no trials"
            raise ValueError(f"the score of a {self._fitted_family} mixed model {needs}")
        if trials is not None:
            times = self._row_values("trials", trials, X, [self._checked_rows(X)])[0]
            check_trials(times)
            check_targets("binomial", target, times)
            tried = times > 0
            target, expected = target[tried] / times[tried], expected[tried]
        return float(r2_score(target, expected))
