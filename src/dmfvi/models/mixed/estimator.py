"""MixedModel, decentralized."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from dmfvi.families import MultivariateNormal
from dmfvi.inference.result import Inference, InferenceObserver
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.estimator import DISPERSION_PRECISION
from dmfvi.models.glm.targets import (
    Targets,
    TargetUnits,
    agree_on_target,
    check_targets,
    check_trials,
)
from dmfvi.models.mixed.across_sites import divided, sharing
from dmfvi.models.mixed.answers import LINK, MixedAnswers
from dmfvi.models.mixed.model import DISPERSED, FAMILIES, POINTS, GroupedShard, MixedEffects
from dmfvi.models.mixed.shared_labels import CommonLabels, check_one_form, common_labels
from dmfvi.models.moments import MOST_PARAMETERS, agree_on_moments
from dmfvi.models.regression.base import VAGUE_INTERCEPT, agree_on_weighted_units
from dmfvi.models.regression.columns import is_frame, summed, terms_named
from dmfvi.models.regression.labels import labels_of, numbered, without_missing
from dmfvi.models.regression.posterior import CoefficientPosterior
from dmfvi.progress import live_draws
from dmfvi.validation import check_choice, check_positive, is_shard_list, unmasked

#: default prior precision of coefficients in agreed units, and prior mean of log deviations of effects
WEAK, LOG_DEVIATION = 1.0, -1.0
#: prior precision of entries below L's diagonal
OFF_DIAGONAL = 1.0
#: how far below zero psi may lie for sums to be more than rounding, in a handful of rows
REACHABLE = 50.0
#: rows times points of one sum of log likelihoods: some seconds
MOST_ROWS_AT_POINTS = 3e7


@dataclass(eq=False, repr=False)
class MixedModel(MixedAnswers):
    """Regression with random intercepts, and optional random slopes, by group: the pooled posterior at every node.

        eta = x.w + v.b_g,   b_g ~ N(0, S),   v = (1, columns with random slopes)

    For groups at one site only, the site integrates out their effects (adaptive Gauss-Hermite quadrature, exact for Gaussian targets) and sends
    sums over groups; effects of single groups stay at the site. Sites compare digests of their labels. A label at two sites is rejected, unless
    ``nested`` declares it as two groups, or ``across_sites`` as one. For groups across sites, the sites agree on the integrand point by point. Sums over
    the rows of each such group leave a site, and all sites could compute its effects: regard the rows of shared groups as disclosed to all sites
    (other families), or their moments (gaussian). Labels do not leave a site.

    Parameters
    ----------
    family : "gaussian", "bernoulli", "binomial", "poisson", "negative-binomial" or "gamma"
        Distribution of the targets: numbers; zeros and ones, or successes of a number of ``trials`` (logit link); counts, with a learned dispersion
        in "negative-binomial" (variance mean + dispersion mean^2); positive numbers, "gamma" (variance dispersion mean^2; log link).
    random_slopes : str or tuple of str
        Terms whose coefficient differs from group to group beside the intercept, two at most.
    nested : bool
        Whether groups are nested in sites: equal labels at different sites are different groups, as wards numbered by each hospital. Otherwise a
        label is one group: a network refuses one that occurs at several sites, and one machine (``network=None``) puts its rows together.
    across_sites : bool
        Whether rows of a group may lie at several sites: equal labels are then one group, as patients who visit several hospitals. A sweep exchanges
        about 25 (1 + P)(2 + P) / 2 numbers for each such group, P parameters, and 361 or 1331 instead of 25 with one or two random slopes.
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
    dispersion_ : float
        Posterior median of the dispersion, negative-binomial and gamma only.
    n_groups_ : int
        Groups of all nodes.
    n_effective_draws_ : float
        Effective number of the weighted draws; nan without any.
    {shared attributes}

    Notes
    -----
    The posterior of (coefficients, logarithms of deviations) is a Gaussian with the means and covariance of the exact one, to about two digits (3520 quasi-random
    draws in a few agreed sums, after the mode has been found), and ``lower_bound_`` the log evidence by the same draws. Where some points around
    the mode show that the posterior is nearly Gaussian, as with thousands of groups, they replace the draws. With more than 24 parameters, or where too few draws count, it is the Gaussian at the mode, with a warning.
    """

    _: KW_ONLY
    family: Literal[
        "gaussian", "bernoulli", "binomial", "poisson", "negative-binomial", "gamma"
    ] = "gaussian"
    random_slopes: tuple[str, ...] = ()
    nested: bool = False
    across_sites: bool = False
    intercept_precision: float = VAGUE_INTERCEPT
    deviation_precision: float = 0.25
    approximation: Literal["moments", "laplace"] = "moments"
    tol: float = 1e-9

    _kept = ("_target", "n_groups_", "_varies", "_groups_are_sites")

    @staticmethod
    def _from_columns(  # type: ignore[override]
        target: FloatArray,
        groups: FloatArray,
        offset: FloatArray | None = None,
        exposure: FloatArray | None = None,
        trials: FloatArray | None = None,
    ) -> dict[str, Any]:
        given = {"offset": offset, "exposure": exposure, "trials": trials}
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
        trials: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n, D), y (n,) and groups, one label a row, or to one array of each per site.

        ``groups``, ``offset``, ``exposure`` (log link) and ``trials`` (binomial) may be names of columns of frames. Without ``groups`` each table of a list is one group. One array is cut
        between groups. Rows without a label are refused, or left out and counted as ``missing`` says.
        """
        self._check_settings()
        session = self._exact_session()
        beside = {"offset": offset, "exposure": exposure, "trials": trials}
        parts = self._grouped(X, y, groups, beside, session)
        weighted = [(x, np.ones(len(x))) for x, _, _ in parts]
        self._units = session.agree(lambda part: agree_on_weighted_units(*part), weighted)[0]
        self._warn_of_far_products()
        family, centred = self.family, self._has_intercept
        vague = self.intercept_precision == VAGUE_INTERCEPT
        self._target: TargetUnits = session.agree(
            lambda part: agree_on_target(family, centred, part[1], vague), parts
        )[0]
        names = self._names()
        slopes = terms_named(self._slopes, names, "random_slopes")
        _check_slopes(slopes)
        self._varies = [names.index(name) for name in slopes]
        counts = [np.array([float(len(np.unique(group)))]) for _, _, group in parts]
        self.n_groups_ = round(float(summed(session, counts)[0])) - self._common.repeated
        self._warn_of_one_group(groups)
        model = self._make_model()
        shards: list[Any] = [self._prepared(*part) for part in parts]
        if self._common.n_shared:
            model = sharing(model, self._common.n_shared)
            numbers = [
                self._shared_numbers(position, part[2]) for position, part in enumerate(parts)
            ]
            shards = [divided(shard, n) for shard, n in zip(shards, numbers, strict=True)]
        volume = -self._target.weight * float(np.log(self._target.scale))
        self._fit(session, model, shards, log_volume=volume, observer=observer)
        if self._common.n_shared:
            self._model = self._model.beside(self._node_beliefs[0])
            self._warn_of_wide_groups()
        if self.approximation == "moments":
            self._take_moments(session, shards, volume)
        self._effects = self._effects_of(session, shards, parts)
        if self._common.n_shared:  # what is kept and saved has no effects of groups
            self._model = self._make_model()
            self._node_beliefs = [belief.plain() for belief in self._node_beliefs]
            self._belief = self._node_beliefs[self._shown]
        self._warn_of_mode()
        return self

    def _take_moments(self, session: Session, shards: list[GroupedShard], volume: float) -> None:
        """Replace the Gaussian at the mode by that of the posterior's moments."""
        model, parts = self._model, list(zip(shards, self._node_beliefs, strict=True))
        most = max(1, int(MOST_ROWS_AT_POINTS // max(1.0, self._units.n_samples)))
        with live_draws(f"{session.label}: weights of draws", self.verbose) as advance:
            self._node_beliefs = session.agree(
                lambda part: agree_on_moments(model, part[0], part[1], most, advance), parts
            )
        self.node_posteriors_ = [self._in_data_units(b.q) for b in self._node_beliefs]
        first = self._node_beliefs[0]
        self.lower_bound_ = first.log_evidence + volume
        self.n_start_rounds_ = session.collective.n_rounds
        self.n_start_bytes_ = session.collective.bytes_sent
        self._show(0)

    def _warn_of_wide_groups(self) -> None:
        """Groups at several sites have fewer quadrature points than their integrands need."""
        model, theta = self._model, self._model.point(self._node_beliefs[0])
        if model.is_wide(theta):
            warnings.warn(
                f"effects of groups differ by {np.exp(theta[-1]):.2g} on the link's scale, and groups with rows at several sites have too few quadrature "
                "points for that: estimates may be some tenths of their deviations off; bring the rows of each group together at one site",
                UserWarning,
                stacklevel=3,
            )

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
        for name in ("nested", "across_sites"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, received {getattr(self, name)!r}")
        if self.nested and self.across_sites:
            raise ValueError(
                "nested=True says that equal labels at two sites are two groups, across_sites=True that they are one: choose one of them"
            )
        slopes = self._slopes
        if len(set(slopes)) < len(slopes):
            raise ValueError(f"random_slopes names a term twice, received {list(slopes)}")
        _check_slopes(slopes)

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
        self._apart, self._groups_are_sites = apart, groups is None
        marks, known = numbered(np.concatenate(labels) if listed else labels)
        if apart:
            site = np.repeat(np.arange(len(sizes)), sizes)
            self._group_keys = [
                (position, label) for position in range(len(sizes)) for label in known
            ]
            marks = site * len(known) + marks
        else:
            self._group_keys = known
        order = np.arange(len(marks))
        if cut:
            X = np.asarray(X, dtype=np.float64)
            order = np.argsort(marks, kind="stable")
        pairs = self._pairs(X, y, session)
        self._common = self._compared(labels, listed, apart, session)
        rows = [x for x, _ in pairs]
        values = {n: np.concatenate(self._row_values(n, v, X, rows)) for n, v in given.items()}
        whole = np.concatenate(rows)[order]
        target = np.concatenate([t for _, t in pairs])[order]
        offsets = self._offset(values, len(whole))[order]
        trials = self._trials(values, len(whole))[order]
        group = marks[order]
        ends = np.cumsum([len(x) for x in rows])[:-1]
        if cut:
            ends = _between_groups(group, ends)
        self._check_values(target)
        return [
            (x, Targets(check_targets(self.family, t, n), o, np.ones(len(t)), n), g)
            for x, t, o, n, g in zip(
                *(np.split(v, ends) for v in (whole, target, offsets, trials, group)), strict=True
            )
        ]

    def _compared(self, labels: Any, listed: bool, apart: bool, session: Session) -> CommonLabels:
        """Which labels several sites have, where that matters."""
        alone = session.pooled or (session.whole and not listed)
        each = [set(part) for part in (labels if listed else [labels])]
        if listed and not apart and (alone or self.across_sites):
            check_one_form(each)
        if alone or self.nested:
            return CommonLabels([{}] * len(each), 0, 0)
        return common_labels(session, each, refuse=not self.across_sites)

    def _warn_of_one_group(self, groups: Any) -> None:
        """Effects of one group say nothing of how much groups differ."""
        if self.n_groups_ > 1:
            return
        what = (
            "no groups are given, so all rows are one group: pass groups, one label for each row or the name of a column"
            if groups is None
            else "groups has one label only"
        )
        warnings.warn(
            f"{what}; how much groups differ is known from the prior alone",
            UserWarning,
            stacklevel=3,
        )

    def _check_values(self, target: NDArray[Any]) -> None:
        if self.family == "bernoulli":
            strange = set(np.unique(target).tolist()) - {0, 1}
            if strange:
                raise ValueError(
                    f"y of a bernoulli mixed model are 0 and 1, received {sorted(strange, key=str)[0]!r}: pass a "
                    "column such as died == 'yes' of True and False"
                )

    def _offset(self, given: dict[str, FloatArray], n: int) -> FloatArray:
        made = given.get("offset", np.zeros(n))
        if "exposure" in given:
            if LINK[self.family] != "log":
                raise ValueError(
                    f"exposure goes with a log link, the family {self.family} has {LINK[self.family]!r}"
                )
            if (given["exposure"] <= 0).any():
                raise ValueError(f"exposure must be positive, received {given['exposure'].min():g}")
            made = made + np.log(given["exposure"])
        return made

    def _trials(self, given: dict[str, FloatArray], n: int) -> FloatArray:
        """One for each row; one trial unless the family counts successes."""
        if (self.family == "binomial") != ("trials" in given):
            needs = (
                "needs trials, one number for each row"
                if self.family == "binomial"
                else "takes no trials"
            )
            raise ValueError(f"a {self.family} mixed model {needs}")
        made = given.get("trials", np.ones(n))
        check_trials(made)
        return made

    def _prepared(self, x: FloatArray, targets: Targets, group: NDArray[Any]) -> GroupedShard:
        """A shard in agreed units."""
        design = self._design(x)
        shift, scale, _ = self._target
        values, offset = targets.values, targets.offset + shift
        if self.family == "gaussian":
            values, offset = (values - targets.offset - shift) / scale, np.zeros(len(values))
        elif self.family == "gamma":
            values = np.log(values)
        numbers = np.unique(group, return_inverse=True)[1]
        varying = self._varying(design)
        return GroupedShard.of(design, varying, values, offset, numbers, targets.trials)

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
        pull = DISPERSION_PRECISION.get(self.family)
        if pull is not None:
            precision, mean = np.append(precision, pull), np.append(mean, 0.0)
        size = 1 + len(self._varies)
        rows, columns = np.tril_indices(size)
        on = rows == columns
        precision = np.append(precision, np.where(on, self.deviation_precision, OFF_DIAGONAL))
        mean = np.append(mean, np.where(on, LOG_DEVIATION, 0.0))
        # without residuals the mode of psi is where the prior's pull is half the number of rows
        bounded = pull is not None and 0.5 * self._target.weight / pull <= REACHABLE
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
        for name in ("noise_variance_", "dispersion_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if self.family in DISPERSED:
            name = "noise_variance_" if self.family == "gaussian" else "dispersion_"
            setattr(self, name, float(np.exp(p["mean"][size])))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _check_slopes(slopes: Sequence[str]) -> None:
    if 1 + len(slopes) > max(POINTS):
        raise ValueError(
            f"random_slopes are {max(POINTS) - 1} at most, received {len(slopes)}, {list(slopes)}: quadrature has too many points"
        )


def _between_groups(labels: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """Cuts moved to where a group ends; a node must have a group."""
    borders = np.append(np.flatnonzero(labels[1:] != labels[:-1]) + 1, len(labels))
    if len(borders) <= len(ends):
        raise ValueError(
            f"{len(borders)} groups cannot be split over {len(ends) + 1} nodes: use a smaller network or more groups"
        )
    made: list[int] = []
    for position, end in enumerate(ends):
        least = 0 if not made else int(np.searchsorted(borders, made[-1], side="right"))
        most = len(borders) - 1 - (len(ends) - position)
        made.append(int(borders[np.clip(np.searchsorted(borders, end), least, most)]))
    return np.array(made, dtype=np.int64)
