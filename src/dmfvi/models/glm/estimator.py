"""GeneralizedLinearModel and its faces, decentralized."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.multiclass import check_classification_targets

from dmfvi.inference.model import Model
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray, label_words, one_blas_thread, plain
from dmfvi.models.glm.dispersion import LogDispersion, agree_on_dispersion
from dmfvi.models.glm.likelihoods import DesignUnits, GlmShard, Likelihood, contrasts, likelihood_of
from dmfvi.models.glm.model import GeneralizedLinear, LearnedPrecision
from dmfvi.models.glm.prediction import GlmPredictions
from dmfvi.models.glm.targets import (
    DISPERSED,
    LABELLED,
    LINKS,
    POSITIVE,
    Targets,
    TargetUnits,
    agree_on_target,
    check_targets,
    check_trials,
)
from dmfvi.models.regression.base import (
    VAGUE_INTERCEPT,
    agree_on_weighted_units,
    check_one_type,
    declared_order,
    known_classes,
)
from dmfvi.models.regression.posterior import CoefficientPosterior
from dmfvi.summary_table import Row, SummaryTable, log_normal_row, rows_of
from dmfvi.validation import check_choice, check_positive

#: default prior precision of coefficients in agreed units
WEAK = 1.0
#: prior precisions of log dispersions in agreed units, and of the logarithms of gaps between cut points
DISPERSION_PRECISION = {
    "gaussian": 0.1,
    "student-t": 0.1,
    "negative-binomial": 0.25,
    "gamma": 0.25,
}
GAP_PRECISION = 0.25
#: what the table shows of a log dispersion psi: a name, and the power of exp(psi)
DISPERSION = {
    "gaussian": ("sd of noise", 0.5),
    "student-t": ("scale of noise", 0.5),
    "negative-binomial": ("dispersion", 1.0),
    "gamma": ("dispersion", 1.0),
}
#: families whose targets have a unit
SCALED = ("gaussian", "student-t")
#: what exp(coefficient) is, by link, or by family where that says more
RATIOS = {"logit": "odds ratio", "log": "rate ratio", "gamma": "ratio of means"}
#: below the table of several classes
RELATIVE = (
    "coefficients are relative to the mean over the classes: those of one term add up to zero"
)


def ratio_of(family: str, link: str) -> str:
    """What exp(coefficient) is, "" for nothing that has a name."""
    return RATIOS.get(family, RATIOS.get(link, ""))


@dataclass(eq=False, repr=False)
class GlmEstimator(GlmPredictions):
    """Fit and predictions of any family; subclasses say which."""

    _: KW_ONLY
    prior_precision: float | ArrayLike | Literal["learned"] | None = None

    _learns_prior: ClassVar[bool] = True
    intercept_precision: float | None = None
    tol: float = 1e-9

    _kept: ClassVar[tuple[str, ...]] = ("classes_", "_target", "n_samples_", "_log_dispersion")

    # parameters of some subclasses, fixed in others; without types, or they would be parameters of all
    family = "gaussian"
    link = cast(Any, None)
    #: density of the log dispersion in the data's units, where its skew counts
    _log_dispersion = cast("LogDispersion | None", None)
    #: labels in the order that the targets' type declares
    _label_order = cast("list[Any] | None", None)
    degrees_of_freedom = 4.0
    classes = cast(Any, None)

    @staticmethod
    def _from_columns(  # type: ignore[override]
        target: FloatArray,
        offset: FloatArray | None = None,
        exposure: FloatArray | None = None,
        weight: FloatArray | None = None,
        trials: FloatArray | None = None,
    ) -> dict[str, Any]:
        given = {"offset": offset, "exposure": exposure, "sample_weight": weight, "trials": trials}
        return {"y": target, **{name: value for name, value in given.items() if value is not None}}

    # -- the fit ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n, D) and y (n,), split evenly over the nodes, or to one array of each per node.

        Beside them a row may have a weight of its log likelihood (``sample_weight``), a known part of its linear predictor
        (``offset``), with a log link an ``exposure`` (offset log exposure), and, binomial only, its number of ``trials``; of frames these may be
        names of columns. With a formula X is a frame or one per node, and y is left out unless the formula has no left-hand side.
        """
        self._check_settings()
        session = self._exact_session()
        given: dict[str, Any] = {
            "offset": offset,
            "exposure": exposure,
            "sample_weight": sample_weight,
            "trials": trials,
        }
        ordered = self.family == "ordinal" and self.classes is None and session.whole
        self._label_order = declared_order(self.formula, X, y) if ordered else None
        X, y, given = self._tabulated(X, y, given, session)
        pairs = self._pairs(X, y, session)
        shards = [x for x, _ in pairs]
        rows = {
            name: self._row_values(name, value, X, shards)
            for name, value in given.items()
            if value is not None
        }
        return self._fit_shards(session, shards, [target for _, target in pairs], rows, observer)

    def _fit_shards(
        self,
        session: Session,
        shards: list[FloatArray],
        y: list[NDArray[Any]],
        rows: dict[str, list[FloatArray]],
        observer: InferenceObserver | None,
    ) -> Self:
        """Agree on units, run the session."""
        targets = self._targets_of(y, rows, session)
        weighted = [(x, t.weight) for x, t in zip(shards, targets, strict=True)]
        self._units = session.agree(lambda part: agree_on_weighted_units(*part), weighted)[0]
        self._warn_of_far_products()
        family, centred = self._family, self._centred
        vague = self.intercept_precision is None
        self._target: TargetUnits = session.agree(
            lambda t: agree_on_target(family, centred, t, vague), targets
        )[0]
        self.n_samples_ = round(self._units.n_samples)
        self._log_dispersion = None
        model = self._make_model()
        prepared = [self._prepared(x, t) for x, t in zip(shards, targets, strict=True)]
        volume = -self._target.weight * float(np.log(self._target.scale))
        with one_blas_thread():
            self._fit(session, model, prepared, log_volume=volume, observer=observer)
            if self._family in DISPERSED:
                self._integrate_dispersion(session, prepared)
        return self

    def _integrate_dispersion(self, session: Session, shards: list[Any]) -> None:
        """Give q the posterior mean and deviation of the log dispersion, and keep its density."""
        parts, model = list(zip(shards, self._node_beliefs, strict=True)), self._model
        agreed = session.agree(lambda part: agree_on_dispersion(model, *part), parts)
        self._node_beliefs = [belief for belief, _ in agreed]
        self._log_dispersion = agreed[0][1]
        if self._log_dispersion is not None and self._family in SCALED:
            self._log_dispersion = self._log_dispersion.moved(2.0 * np.log(self._target.scale))
        self.node_posteriors_ = [self._in_data_units(belief.q) for belief in self._node_beliefs]
        self.n_start_rounds_ = session.collective.n_rounds
        self.n_start_bytes_ = session.collective.bytes_sent
        self._show(0)

    def _check_settings(self) -> None:
        check_choice("family", self.family, list(LINKS))
        if self.link is not None:
            check_choice(f"link of a {self.family} model", self.link, LINKS[self.family])
        check_positive("degrees_of_freedom", self.degrees_of_freedom)
        if isinstance(self.prior_precision, str):
            check_choice("prior_precision", self.prior_precision, ["learned"])
        flat = self.intercept_precision
        if flat is not None and not (isinstance(flat, int | float) and 0 <= flat < np.inf):
            raise ValueError(
                f"intercept_precision must be finite and not negative, received {plain(flat)!r}"
            )

    def _targets_of(
        self, given: list[NDArray[Any]], rows: dict[str, list[FloatArray]], session: Session
    ) -> list[Targets]:
        """Every node's targets as the likelihood has them."""
        family = self.family
        if family in LABELLED:
            labels = np.concatenate(given)
            check_one_type(labels)
            check_classification_targets(labels)
            classes = self.classes
            if family == "ordinal" and classes is None and self._label_order is not None:
                seen = set(labels.tolist())
                classes = [label for label in self._label_order if label in seen]
            if family == "ordinal" and classes is None and labels.dtype.kind not in "biuf":
                raise ValueError(
                    f"the order of {sorted(set(labels.tolist()))[:5]} is not known: name it, as in "
                    "classes=['low', 'medium', 'high'], or pass y as an ordered categorical"
                )
            if classes is not None and len(set(classes)) < len(list(classes)):
                raise ValueError(f"classes must differ, received {list(classes)}")
            known = known_classes(classes, labels, session)
            self.classes_ = known if family == "ordinal" else np.unique(known)
            self._check_classes()
        if family == "binomial" and "trials" not in rows:
            raise ValueError("a binomial model needs trials, one number for each row")
        for name, allowed in (
            ("trials", family == "binomial"),
            ("exposure", self._link == "log"),
            ("offset", family not in ("multinomial",)),
        ):
            if name in rows and not allowed:
                raise ValueError(f"a {family} model with {self._link_words} link takes no {name}")
        return [self._one_target(i, y, rows) for i, y in enumerate(given)]

    def _one_target(self, node: int, y: NDArray[Any], rows: dict[str, list[FloatArray]]) -> Targets:
        n = len(y)
        own = {name: parts[node] for name, parts in rows.items()}
        ones = np.ones(n)
        weight, trials = own.get("sample_weight", ones), own.get("trials", ones)
        exposure = own.get("exposure")
        if (weight < 0.0).any():
            raise ValueError(f"sample_weight must not be negative, received {weight.min():g}")
        check_trials(trials)
        offset = own.get("offset", np.zeros(n))
        if exposure is not None:
            if (exposure <= 0).any():
                raise ValueError(f"exposure must be positive, received {exposure.min():g}")
            offset = offset + np.log(exposure)
        if self.family in LABELLED:
            order = np.argsort(self.classes_, kind="stable")
            positions = order[np.searchsorted(self.classes_, y, sorter=order)]
            return Targets(positions.astype(np.float64), offset, weight, trials)
        return Targets(check_targets(self.family, y, trials), offset, weight, trials)

    def _check_classes(self) -> None:
        least = 3 if self.family == "ordinal" else 2
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {plain(self.classes_[0])!r}: a classifier needs two or more over all nodes"
            )
        if len(self.classes_) < least or (self._family == "bernoulli" and len(self.classes_) > 2):
            instead = "bernoulli" if self.family == "ordinal" else "multinomial or ordinal"
            raise ValueError(
                f"y has {len(self.classes_)} classes, which is not for family {self.family}: use family {instead}"
            )

    def _prepared(self, data: FloatArray, targets: Targets) -> Any:
        """A shard in agreed units."""
        shift, scale, _ = self._target
        values, offset = targets.values, (targets.offset + shift) / scale
        if self._family in SCALED:
            values, offset = (values - targets.offset - shift) / scale, np.zeros(len(values))
        elif self._family == "gamma":
            values = np.log(values)
        constant = self._likelihood.constant(values, targets.weight, targets.trials)
        shift_x = self._units.shift if self._centred else np.zeros(data.shape[1])
        units = DesignUnits(shift_x, self._units.scale, self._has_intercept)
        return GlmShard(data, values, offset, targets.weight, targets.trials, constant, units)

    # -- the model ----------------------------------------------------------------------------

    @property
    def _family(self) -> str:
        """The family that runs; a face may choose by the number of classes."""
        return str(self.family)

    @property
    def _link(self) -> str:
        return str(self.link or LINKS[self._family][0])

    @property
    def _has_intercept(self) -> bool:
        return (
            self._wants_intercept and self._family != "ordinal"
        )  # there cut points take its place

    @property
    def _centred(self) -> bool:
        return self._has_intercept or self._family == "ordinal"

    @property
    def _likelihood(self) -> Likelihood:
        n_classes = len(self.classes_) if self.family in LABELLED else 0
        return likelihood_of(
            self._family,
            self._link,
            n_classes=n_classes,
            degrees_of_freedom=float(self.degrees_of_freedom),
        )

    def _make_model(self) -> Model:
        family, likelihood, scale = self._family, self._likelihood, self._target.scale
        slopes = self._coefficient_precision(self._units, WEAK)
        if self.prior_precision is not None and not isinstance(self.prior_precision, str):
            slopes = slopes * scale**2
        flat = self.intercept_precision
        intercept = VAGUE_INTERCEPT if flat is None else float(flat) * scale**2
        one = np.append(slopes, intercept) if self._has_intercept else slopes
        shared = np.zeros(0)
        if family == "ordinal":
            shared = np.append(intercept, np.full(likelihood.n_shared - 1, GAP_PRECISION))
        elif family in DISPERSED:
            shared = np.array([DISPERSION_PRECISION[family]])
        precision = np.concatenate([np.tile(one, likelihood.n_outputs), shared])
        learned = None
        if isinstance(self.prior_precision, str):
            outputs = range(likelihood.n_outputs)
            entries = [o * len(one) + j for o in outputs for j in range(len(slopes))]
            learned = LearnedPrecision(tuple(entries))
        return GeneralizedLinear(likelihood, np.zeros(len(precision)), precision, learned)

    def _in_data_units(self, q: Any) -> Any:
        likelihood, (shift, scale, _) = self._likelihood, self._target
        one = scale * self._to_data()
        size, n_outputs = len(one), likelihood.n_outputs
        whole = n_outputs * size + likelihood.n_shared
        matrix, moved = np.zeros((whole, whole)), np.zeros(whole)
        for o in range(n_outputs):
            matrix[o * size : (o + 1) * size, o * size : (o + 1) * size] = one
            if self._has_intercept:
                moved[(o + 1) * size - 1] = shift
        for j in range(n_outputs * size, whole):
            matrix[j, j] = 1.0
        if self._family == "ordinal":  # cut points are seen from x = 0
            matrix[size, :size] = self._units.shift / self._units.scale
            moved[size] = -shift
        if self._family in SCALED:
            moved[-1] = 2.0 * np.log(scale)
        return CoefficientPosterior(q, matrix, moved)

    def _take(self, node: int) -> None:
        p = self.posterior_.parameters()
        d, likelihood = len(self._units.shift), self._likelihood
        size = d + 1 if self._has_intercept else d
        n_outputs, shared = likelihood.n_outputs, likelihood.n_shared
        coefficients = p["mean"][: n_outputs * size].reshape(n_outputs, size)
        within = p["covariance"][: n_outputs * size, : n_outputs * size]
        if self._family == "multinomial":
            turn = contrasts(len(self.classes_))
            coefficients = turn @ coefficients
            within = np.einsum(
                "ki,iajb,lj->kalb", turn, within.reshape(n_outputs, size, n_outputs, size), turn
            )
            within = np.stack([within[k, :, k] for k in range(len(turn))])
        else:
            within = within[None]
        intercepts = coefficients[:, d] if self._has_intercept else np.zeros(len(coefficients))
        if self.family in LABELLED:
            self.coef_, self.intercept_ = coefficients[:, :d], intercepts
            self.coef_covariance_ = within
        else:
            self.coef_, self.intercept_ = coefficients[0, :d], float(intercepts[0])
            self.coef_covariance_ = within[0]
        if shared and self._family != "ordinal":
            variance = p["covariance"][-1, -1]
            self.dispersion_ = float(np.exp(p["mean"][-1] + 0.5 * variance))
            if self._log_dispersion is not None:
                self.dispersion_ = self._log_dispersion.moments()[0]
        if self._family == "ordinal":
            psi = p["mean"][d:]
            self.cutpoints_ = psi[0] + np.append(0.0, np.cumsum(np.exp(psi[1:])))
            self.intercept_ = np.zeros(1)

    # -- the table ----------------------------------------------------------------------------

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """The table of coefficients in the data's units, with central intervals."""
        names = self._names() + (["Intercept"] if self._has_intercept else [])
        covariances = np.atleast_3d(self.coef_covariance_.T).T
        coefficients = np.atleast_2d(self.coef_)
        intercepts = np.atleast_1d(self.intercept_)
        several = len(coefficients) > 1
        terms: list[str] = []
        means: list[float] = []
        variances: list[float] = []
        for k, covariance in enumerate(covariances):
            prefix = f"{label_words(self.classes_[k])}: " if several else ""
            terms += [prefix + name for name in names]
            means += [*coefficients[k], *([intercepts[k]] if self._has_intercept else [])]
            variances += list(np.diag(covariance))
        # of several classes no coefficient is a log odds ratio: they are relative to the classes' mean
        ratio = "" if several else ratio_of(self._family, self._link)
        with_ratio = [bool(ratio)] * len(terms)
        for term, mean, variance in self._cut_points() if self._family == "ordinal" else []:
            terms.append(term)
            means.append(mean)
            variances.append(variance)
            with_ratio.append(False)
        rows = rows_of(
            terms,
            np.array(means),
            np.sqrt(np.array(variances)),
            lambda size: float(ndtri(0.5 + 0.5 * size)),
            level,
            with_ratio,
        )
        if self._family in DISPERSED:
            rows.append(self._dispersion_row(level))
        title = f"{self._family} regression, {self._link_words} link"
        notes = (RELATIVE,) if self._link_words == "softmax" else ()
        return SummaryTable(title, self._facts(), level, ratio, rows, notes)

    @property
    def _link_words(self) -> str:
        """The link for people."""
        return "softmax" if self._family == "multinomial" else self._link

    @property
    def _whole_weight(self) -> float:
        return float(self._target.weight)

    def _dispersion_row(self, level: float) -> Row:
        """Median, deviation and interval of the dispersion, or of the noise's deviation."""
        p, (name, power) = self.posterior_.parameters(), DISPERSION[self._family]
        deviation = float(np.sqrt(p["covariance"][-1, -1]))
        row = log_normal_row(name, power * p["mean"][-1], power * deviation, level)
        if self._log_dispersion is None:
            return row
        ends = self._log_dispersion.quantile([0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level])
        low, middle, high = (float(value) for value in np.exp(power * ends))
        _, spread = self._log_dispersion.moments(power)
        return row._replace(estimate=middle, sd=spread, lower=low, upper=high)

    def _cut_points(self) -> list[tuple[str, float, float]]:
        """Names, means and variances of an ordinal model's cut points, by the delta method."""
        p = self.posterior_.parameters()
        m = self._likelihood.n_shared
        steps = np.append(1.0, np.exp(p["mean"][-m:][1:]))
        slopes = np.tril(np.ones((m, m))) * steps
        spread = slopes @ p["covariance"][-m:, -m:] @ slopes.T
        labels = [f"{label_words(a)}|{label_words(b)}" for a, b in pairwise(self.classes_)]
        return [
            (label, float(cut), float(spread[k, k]))
            for k, (label, cut) in enumerate(zip(labels, self.cutpoints_, strict=True))
        ]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        labelled = self.family in LABELLED
        tags.estimator_type = "classifier" if labelled else "regressor"
        tags.classifier_tags = ClassifierTags(multi_class=self._many_classes) if labelled else None
        tags.regressor_tags = None if labelled else RegressorTags()
        tags.target_tags.required = True
        tags.target_tags.positive_only = self.family in POSITIVE
        return tags

    @property
    def _many_classes(self) -> bool:
        return self.family != "bernoulli"
