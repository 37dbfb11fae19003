"""MixedModel, decentralized."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from dmfvi.families import MultivariateNormal
from dmfvi.inference.session import Inference, InferenceObserver, Session
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.targets import (
    Targets,
    TargetUnits,
    agree_on_target,
    check_targets,
    expected_response,
    response,
)
from dmfvi.models.mixed.model import FAMILIES, POINTS, GroupedShard, MixedEffects
from dmfvi.models.mixed.shared_labels import check_one_form, refuse_shared
from dmfvi.models.moments import MOST_PARAMETERS, agree_on_moments
from dmfvi.models.regression.base import VAGUE_INTERCEPT, Regression, agree_on_weighted_units
from dmfvi.models.regression.columns import is_frame, summed
from dmfvi.models.regression.labels import labels_of, numbered, without_missing
from dmfvi.models.regression.posterior import CoefficientPosterior
from dmfvi.shard_lists import joined
from dmfvi.summary_table import Row, SummaryTable, rows_of
from dmfvi.validation import check_choice, check_level, check_positive, is_shard_list, unmasked

#: default prior precision of coefficients in agreed units, and prior mean of log deviations of effects
WEAK, LOG_DEVIATION = 1.0, -1.0
#: prior precisions of entries below L's diagonal, and of the log noise variance
OFF_DIAGONAL, LOG_NOISE = 1.0, 0.1
#: how far below zero a log noise variance may lie for sums to be more than rounding, in a handful of rows
REACHABLE = 50.0
LINK = {"gaussian": "identity", "bernoulli": "logit", "poisson": "log"}
#: draws for intervals of variance components
DRAWS = 4000


@dataclass(eq=False, repr=False)
class MixedModel(Regression):
    """Regression with an intercept, and slopes if wanted, that differ from group to group: the pooled posterior at every node.

        eta = x.w + v.b_g,   b_g ~ N(0, S),   v = (1, columns with random slopes)

    All rows of a group are at one site. A site integrates its groups' effects out (adaptive Gauss-Hermite quadrature, exact for Gaussian targets) and sends
    sums over groups; effects of single groups stay where they are. Sites compare digests of their labels: a label at two sites is refused, unless
    ``nested`` says that it is two groups.

    Parameters
    ----------
    family : "gaussian", "bernoulli" or "poisson"
        Distribution of the targets: numbers, zeros and ones (logit link), counts (log link).
    random_slopes : str or tuple of str
        Terms whose coefficient differs from group to group beside the intercept, two at most.
    nested : bool
        Whether groups are nested in sites: equal labels at different sites are different groups, as wards numbered by each hospital. Otherwise a
        label is one group: a network refuses one that occurs at several sites, and one machine (``network=None``) puts its rows together.
    prior_precision : float, array (n_features,) or None
        Prior precision of the coefficients; None is 1 in standardised features and (gaussian) standardised targets.
    intercept_precision : float
        Prior precision of the intercept in agreed units.
    deviation_precision : float
        Prior precision of the logarithms of the effects' deviations, around a third of a target's deviation (gaussian) or of one on the link's scale.
    approximation : {"moments", "laplace"}
        Means and covariance of the posterior by weighted draws at which the nodes agree on the likelihood ("moments"), or the Gaussian at its
        mode, which is faster and too narrow for deviations of effects.
    fit_intercept : bool
        Whether the model has a common intercept beside those of the groups.
    {table parameters}
    {shared parameters}

    Attributes
    ----------
    coef_ : array (n_features,)
        Posterior mean of the coefficients.
    intercept_ : float
        Posterior mean of the common intercept; zero without one.
    coef_covariance_ : array
        Posterior covariance of (coefficients, intercept).
    effects_std_ : array (1 + slopes,)
        Posterior medians of the effects' deviations: intercept at covariates of zero, then slopes.
    noise_variance_ : float
        Posterior median of the noise variance, gaussian only.
    n_groups_ : int
        Groups of all nodes.
    n_effective_draws_ : float
        Effective number of the weighted draws; nan without any.
    {shared attributes}

    Notes
    -----
    The posterior of (coefficients, logarithms of deviations) is a Gaussian with the means and covariance of the exact one, to about two digits (3520 quasi-random
    draws in four agreed sums, after the mode has been found), and ``lower_bound_`` the log evidence by the same draws. With more than 24
    parameters, or where too few draws count, it is the Gaussian at the mode, with a warning.
    """

    _: KW_ONLY
    family: Literal["gaussian", "bernoulli", "poisson"] = "gaussian"
    random_slopes: tuple[str, ...] = ()
    nested: bool = False
    intercept_precision: float = VAGUE_INTERCEPT
    deviation_precision: float = 0.25
    approximation: Literal["moments", "laplace"] = "moments"
    tol: float = 1e-9

    _kept = ("_target", "n_groups_", "_varies")

    @staticmethod
    def _from_columns(  # type: ignore[override]
        target: FloatArray,
        groups: FloatArray,
        offset: FloatArray | None = None,
        exposure: FloatArray | None = None,
    ) -> dict[str, Any]:
        given = {"offset": offset, "exposure": exposure}
        more = {name: value for name, value in given.items() if value is not None}
        return {"y": target, "groups": groups, **more}

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n, D), y (n,) and groups, one label a row, or to one array of each per site.

        ``groups``, ``offset`` and ``exposure`` (poisson) may be names of columns of frames; None is one group a site. One array is cut between groups. Rows
        without a label are refused, or left out and counted as ``missing`` says.
        """
        self._check_settings()
        session = self._exact_session()
        parts = self._grouped(X, y, groups, {"offset": offset, "exposure": exposure}, session)
        weighted = [(x, np.ones(len(x))) for x, _, _ in parts]
        self._units = session.agree(lambda part: agree_on_weighted_units(*part), weighted)[0]
        family, centred = self.family, self._has_intercept
        self._target: TargetUnits = session.agree(
            lambda part: agree_on_target(family, centred, part[1]), parts
        )[0]
        names = self._names()
        unknown = [name for name in self._slopes if name not in names]
        if unknown:
            raise ValueError(f"random_slopes names {unknown}, which are none of the terms {names}")
        self._varies = [names.index(name) for name in self._slopes]
        counts = [np.array([float(len(np.unique(group)))]) for _, _, group in parts]
        self.n_groups_ = round(float(summed(session, counts)[0]))
        shards = [self._prepared(*part) for part in parts]
        volume = -self._target.weight * float(np.log(self._target.scale))
        self._fit(session, self._make_model(), shards, log_volume=volume, observer=observer)
        if self.approximation == "moments":
            self._take_moments(session, shards, volume)
        self._effects = self._effects_of(shards, parts)
        self._warn_of_mode()
        return self

    def _take_moments(self, session: Session, shards: list[GroupedShard], volume: float) -> None:
        """Replace the Gaussian at the mode by that of the posterior's moments."""
        model, parts = self._model, list(zip(shards, self._node_beliefs, strict=True))
        self._node_beliefs = session.agree(lambda part: agree_on_moments(model, *part), parts)
        self.node_posteriors_ = [self._in_data_units(b.q) for b in self._node_beliefs]
        first = self._node_beliefs[0]
        self.lower_bound_ = first.log_evidence + volume
        self.n_start_rounds_ = session.collective.n_rounds
        self.n_start_bytes_ = session.collective.bytes_sent
        self._show(0)

    def _warn_of_mode(self) -> None:
        """Where weighted draws could not tell the posterior's moments."""
        if self.approximation != "moments" or self._belief.evidence is not None:
            return
        size = len(self._model.prior_mean)
        many = size > MOST_PARAMETERS
        why = f"{size} parameters" if many else "its shape is far from a Gaussian"
        cure = "leave columns out" if many else "it takes more rows or groups"
        warnings.warn(
            f"the posterior is approximated at its mode ({why}), intervals of the effects' deviations are too narrow: {cure}, or accept it with "
            "approximation='laplace'",
            UserWarning,
            stacklevel=3,
        )

    def _check_settings(self) -> None:
        check_choice("family", self.family, list(FAMILIES))
        check_choice("approximation", self.approximation, ["moments", "laplace"])
        check_positive("intercept_precision", self.intercept_precision)
        check_positive("deviation_precision", self.deviation_precision)
        if not isinstance(self.nested, bool | np.bool_):
            raise ValueError(f"nested must be True or False, received {self.nested!r}")
        slopes = self._slopes
        if len(set(slopes)) < len(slopes):
            raise ValueError(f"random_slopes names a term twice, received {list(slopes)}")
        if 1 + len(slopes) > max(POINTS):
            raise ValueError(
                f"random_slopes are {max(POINTS) - 1} at most, received {len(slopes)}: quadrature has too many points"
            )

    @property
    def _slopes(self) -> tuple[str, ...]:
        """``random_slopes``, also where one name was given as it is."""
        given = self.random_slopes
        return (given,) if isinstance(given, str) else tuple(given)

    def _grouped(
        self, X: Any, y: Any, groups: Any, beside: dict[str, Any], session: Session
    ) -> list[tuple[FloatArray, Targets, NDArray[Any]]]:
        """Rows, targets and group labels of each node of this process; no group is cut."""
        if not is_shard_list(X) and not is_frame(X):
            X = validate_data(self, unmasked(X), dtype=np.float64, ensure_all_finite="allow-nan")
        labels, named = labels_of(X, groups, "groups")
        gone: list[float] = []
        how = self.missing or ("drop" if self.formula is not None else "raise")
        if labels is not None:
            names, others = list(beside), [y, *beside.values()]
            X, labels, others, gone = without_missing(X, labels, others, "groups", how)
            y, beside = others[0], dict(zip(names, others[1:], strict=True))
        X, y, given = self._tabulated(X, y, {**beside, "groups": labels}, session, named)
        if gone and how != "raise":
            self.n_dropped_ += round(float(summed(session, [np.array([n]) for n in gone])[0]))
        listed = is_shard_list(X)
        sizes = [len(part) for part in X] if listed else [len(X)]
        labels = given.pop("groups", None)
        # one array over several nodes: groups one after the other, cut between them
        cut = not listed and not session.pooled and session.whole and labels is not None
        apart = listed and (self.nested or labels is None)
        if labels is None:
            labels = [np.full(size, None) for size in sizes] if listed else np.full(sizes[0], None)
        marks, known = numbered(np.concatenate(labels) if listed else labels)
        if apart:
            site = np.repeat(np.arange(len(sizes)), sizes)
            self._group_keys = [(place, label) for place in range(len(sizes)) for label in known]
            marks = site * len(known) + marks
        else:
            self._group_keys = known
        order = np.arange(len(marks))
        if cut:
            X = np.asarray(X, dtype=np.float64)
            order = np.argsort(marks, kind="stable")
        pairs = self._pairs(X, y, session)
        alone = session.pooled or (session.whole and not listed)
        if not (alone or self.nested):
            refuse_shared(session, [set(part) for part in (labels if listed else [labels])])
        elif listed and not apart:
            check_one_form([set(part) for part in labels])
        rows = [x for x, _ in pairs]
        values = {n: np.concatenate(self._row_values(n, v, X, rows)) for n, v in given.items()}
        whole = np.concatenate(rows)[order]
        target = np.concatenate([t for _, t in pairs])[order]
        offsets = self._offset(values, len(whole))[order]
        group = marks[order]
        ends = np.cumsum([len(x) for x in rows])[:-1]
        if cut:
            ends = _between_groups(group, ends)
        self._check_values(target)
        return [
            (
                x,
                Targets(check_targets(self.family, t, None), o, np.ones(len(t)), np.ones(len(t))),
                g,
            )
            for x, t, o, g in zip(
                *(np.split(v, ends) for v in (whole, target, offsets, group)), strict=True
            )
        ]

    def _check_values(self, target: NDArray[Any]) -> None:
        if self.family == "bernoulli":
            strange = set(np.unique(target).tolist()) - {0, 1}
            if strange:
                raise ValueError(
                    f"y of a bernoulli mixed model are 0 and 1, received {sorted(strange, key=str)[0]!r}"
                )

    def _offset(self, given: dict[str, FloatArray], n: int) -> FloatArray:
        made = given.get("offset", np.zeros(n))
        if "exposure" in given:
            if self.family != "poisson":
                raise ValueError(f"exposure goes with family poisson, received {self.family!r}")
            if (given["exposure"] <= 0).any():
                raise ValueError(f"exposure must be positive, received {given['exposure'].min():g}")
            made = made + np.log(given["exposure"])
        return made

    def _prepared(self, x: FloatArray, targets: Targets, group: NDArray[Any]) -> GroupedShard:
        """A shard in agreed units."""
        design = self._design(x)
        shift, scale, _ = self._target
        values, offset = targets.values, targets.offset + shift
        if self.family == "gaussian":
            values, offset = (values - targets.offset - shift) / scale, np.zeros(len(values))
        numbers = np.unique(group, return_inverse=True)[1]
        return GroupedShard.of(design, self._varying(design), values, offset, numbers)

    def _varying(self, design: FloatArray) -> FloatArray:
        """Ones, and the columns whose coefficients differ from group to group."""
        return np.column_stack([np.ones(len(design)), design[:, self._varies]])

    def _make_model(self) -> MixedEffects:
        scale = self._target.scale
        precision = self._coefficient_precision(self._units, WEAK)
        if self.prior_precision is not None:
            precision = precision * scale**2
        if self._has_intercept:
            precision = np.append(precision, self.intercept_precision)
        mean = np.zeros(len(precision))
        if self.family == "gaussian":
            precision, mean = np.append(precision, LOG_NOISE), np.append(mean, 0.0)
        size = 1 + len(self._varies)
        rows, columns = np.tril_indices(size)
        on = rows == columns
        precision = np.append(precision, np.where(on, self.deviation_precision, OFF_DIAGONAL))
        mean = np.append(mean, np.where(on, LOG_DEVIATION, 0.0))
        # without residuals the mode of the log noise variance is where the prior's pull is half the number of rows
        bounded = 0.5 * self._target.weight / LOG_NOISE <= REACHABLE
        return MixedEffects(mean, precision, self.family, size, bounded)

    def _keep_run(self, inference: Inference, log_volume: float) -> None:
        super()._keep_run(inference, log_volume)
        self.lower_bound_ = inference.beliefs[0].log_evidence + log_volume

    def _in_data_units(self, q: MultivariateNormal) -> CoefficientPosterior:
        shift, scale, _ = self._target
        one = scale * self._to_data()
        whole = len(q.mean_times_precision)
        matrix, moved = np.eye(whole), np.zeros(whole)
        matrix[: len(one), : len(one)] = one
        if self._has_intercept:
            moved[len(one) - 1] = shift
        if self.family == "gaussian":
            moved[len(one)] = 2.0 * np.log(scale)
        return CoefficientPosterior(q, matrix, moved)

    def _take(self, node: int) -> None:
        p, d = self.posterior_.parameters(), len(self._units.shift)
        size = d + 1 if self._has_intercept else d
        ess = self._belief.ess
        self.n_effective_draws_ = float("nan") if ess is None else ess
        self.coef_ = p["mean"][:d]
        self.intercept_ = float(p["mean"][d]) if self._has_intercept else 0.0
        self.coef_covariance_ = p["covariance"][:size, :size]
        self.effects_std_ = np.median(self._deviations(), axis=0)
        if self.family == "gaussian":
            self.noise_variance_ = float(np.exp(p["mean"][size]))

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

    # -- the table ----------------------------------------------------------------------------

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """Coefficients, then deviations of the groups' effects and of the noise, with central intervals."""
        names = self._names() + (["Intercept"] if self._has_intercept else [])
        mean = np.append(self.coef_, self.intercept_)[: len(names)]
        ratio = {"bernoulli": "odds ratio", "poisson": "rate ratio"}.get(self.family, "")
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
        labels = [f"sd of {name} by group" for name in ("Intercept", *self._slopes)]
        if self.family == "gaussian":
            p = self.posterior_.parameters()
            at = len(names)
            z = np.random.default_rng(0).standard_normal(DRAWS)
            draws.append(np.exp(0.5 * (p["mean"][at] + np.sqrt(p["covariance"][at, at]) * z)))
            labels.append("sd of noise")
        for label, values in zip(labels, draws, strict=True):
            low, middle, high = (float(v) for v in np.quantile(values, ends))
            rows.append(Row(label, middle, float(values.std()), low, high, None, None, None))
        title = f"{self.family} mixed model, {LINK[self.family]} link"
        facts = self._facts()
        facts.insert(1, ("groups", f"{self.n_groups_}"))
        exact = np.isfinite(self.n_effective_draws_)
        facts.append(("posterior", "means and covariance" if exact else "Gaussian at the mode"))
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

    def predict(
        self, X: Any, return_std: bool = False, *, offset: Any = None, exposure: Any = None
    ) -> Any:
        """Expected targets in a group that is not known (bernoulli: the probability of 1), averaged over groups and posterior.

        With ``return_std`` also the posterior deviation of the expected target.
        """
        mean, own, groups = self._predictor(X, offset, exposure)
        link = LINK[self.family]
        expected = expected_response(link, mean, own + groups)
        if not return_std:
            return expected
        ends = [expected_response(link, mean + s * np.sqrt(own), groups) for s in (-1.0, 1.0)]
        return expected, 0.5 * (ends[1] - ends[0])

    def predict_interval(
        self, X: Any, level: float = 0.9, *, offset: Any = None, exposure: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of central intervals of a new group's expected target: coefficients and the group's effects are uncertain."""
        check_level(level)
        mean, own, groups = self._predictor(X, offset, exposure)
        reach = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(own + groups)
        link = LINK[self.family]
        return response(link, mean - reach), response(link, mean + reach)

    def random_effects(self, site: int = 0) -> dict[Any, FloatArray]:
        """Posterior means of the effects (intercept at covariates of zero, slopes) of a site's groups, shrunken to zero, at the mode.

        Keys are the labels with their own type; with ``nested`` and a list of sites, pairs (site, label). Effects are in the process that has the
        rows, and in no file.
        """
        check_is_fitted(self)
        known = getattr(self, "_effects", None)
        if known is None:
            raise ValueError("effects of groups are not in files: fit the model where the rows are")
        if not 0 <= site < len(known):
            raise ValueError(f"site must be below {len(known)}, received {site}")
        return dict(known[site])

    def _effects_of(
        self, shards: list[GroupedShard], parts: list[tuple[FloatArray, Targets, NDArray[Any]]]
    ) -> list[dict[Any, FloatArray]]:
        theta = self._model.posterior(self._belief).parameters()["mean"]
        turn, made = self._effect_units(), []
        for shard, (_, _, group) in zip(shards, parts, strict=True):
            effects = self._model.expand_with_effects(shard, theta)[1] @ turn.T
            keys = [self._group_keys[number] for number in np.unique(group)]
            made.append(dict(zip(keys, effects, strict=True)))
        return made

    def score(self, X: Any, y: Any = None, *, offset: Any = None, exposure: Any = None) -> float:
        """R^2 of expected targets in groups that are not known; y may be in the formula."""
        from sklearn.metrics import r2_score  # 10 MB that a fit does not need

        expected = joined(self.predict(X, offset=offset, exposure=exposure))
        return float(r2_score(column_or_1d(self._scored(X, y)), expected))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _between_groups(labels: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """Cuts moved to where a group ends; a node must have a group."""
    borders = np.append(np.flatnonzero(labels[1:] != labels[:-1]) + 1, len(labels))
    if len(borders) <= len(ends):
        raise ValueError(
            f"{len(borders)} groups cannot be split over {len(ends) + 1} nodes: use a smaller network or more groups"
        )
    made: list[int] = []
    for place, end in enumerate(ends):
        least = 0 if not made else int(np.searchsorted(borders, made[-1], side="right"))
        most = len(borders) - 1 - (len(ends) - place)
        made.append(int(borders[np.clip(np.searchsorted(borders, end), least, most)]))
    return np.array(made, dtype=np.int64)
