"""Predictions of generalized linear models, averaged over the posterior."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, softmax
from sklearn.utils.metaestimators import available_if

from dmfvi.estimator import generator_of
from dmfvi.export import Pointwise
from dmfvi.families import MultivariateNormal
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.likelihoods import Likelihood, contrasts
from dmfvi.models.glm.quadrature import cubature, quasi_random
from dmfvi.models.glm.targets import (
    DISPERSED,
    LABELLED,
    WIDE,
    TargetUnits,
    average,
    check_targets,
    expected_response,
    response,
)
from dmfvi.models.pointwise import (
    log_ordered,
    log_softmax_of,
    new_targets,
    of_classes,
    of_targets,
)
from dmfvi.models.regression.base import Regression
from dmfvi.shard_lists import answering_lists, joined, joined_weights
from dmfvi.validation import check_choice, check_level

#: draws of a predictive interval
DRAWS = 4000
#: quasi-random points of the probabilities of more than two classes under a wide Gaussian
MANY_POINTS = 4096
#: numbers of a block of draws
LARGEST_BLOCK = 4_000_000


def _labelled(estimator: Any) -> bool:
    """Whether its targets are labels, for methods that only classifiers have."""
    if estimator.family not in LABELLED:
        raise AttributeError(f"a {estimator.family} model has no classes")
    return True


def _counted(estimator: Any) -> bool:
    if estimator.family in LABELLED:
        raise AttributeError(f"a {estimator.family} model predicts classes: use predict_proba")
    return True


class GlmPredictions(Regression):
    """What a fitted generalized linear model says of rows."""

    family: str
    classes_: NDArray[Any]
    _target: TargetUnits

    @property
    @abstractmethod
    def _link(self) -> str:
        """The link function."""

    @property
    @abstractmethod
    def _likelihood(self) -> Likelihood:
        """The likelihood of a row."""

    def _predictor(
        self, X: Any, offset: Any = None, exposure: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each row's linear predictor in the data's units (one output)."""
        rows = self._checked_rows(X)
        design = self._design(rows)
        p = self._belief_normal.parameters()
        size = design.shape[1]
        shift, scale, _ = self._target
        mean = shift + scale * (design @ p["mean"][:size])
        spread = np.einsum(
            "ni,ij,nj->n", design, p["covariance"][:size, :size], design, optimize=True
        )
        given = self._known_offset(X, rows, offset, exposure)
        return mean + given, scale**2 * np.maximum(spread, 0.0)

    def _known_offset(self, X: Any, rows: FloatArray, offset: Any, exposure: Any) -> FloatArray:
        known = np.zeros(len(rows))
        if offset is not None:
            known = known + self._row_values("offset", offset, X, [rows])[0]
        if exposure is not None:
            if self._link != "log":
                self._refuse_exposure(exposure)
            times = self._row_values("exposure", exposure, X, [rows])[0]
            if not (times > 0).all():
                raise ValueError(f"exposure must be positive, received {times.min():g}")
            known = known + np.log(times)
        return known

    def _refuse_offset(self, offset: Any) -> None:
        if offset is not None:
            raise ValueError(f"a {self._family} model takes no offset")

    def _refuse_exposure(self, exposure: Any) -> None:
        if exposure is not None:
            raise ValueError(f"exposure goes with a log link, this model has {self._link!r}")

    @property
    def _belief_normal(self) -> MultivariateNormal:
        return self._model.posterior(self._belief)

    def predict(
        self, X: Any, return_std: bool = False, *, offset: Any = None, exposure: Any = None
    ) -> Any:
        """Expected targets, averaged over the posterior; the most probable class where targets are labels.

        With ``return_std`` also the posterior standard deviation of the expected target.
        """
        if self.family in LABELLED:
            self._refuse_exposure(exposure)
            if return_std:
                raise ValueError(f"a {self.family} model predicts classes: use predict_proba")
            chance, _ = self._chances(X, offset)
            return np.asarray(self.classes_[chance.argmax(1)])
        mean, variance = self._predictor(X, offset, exposure)
        expected = expected_response(self._link, mean, variance)
        if not return_std:
            return expected
        if self._link == "identity":
            return expected, np.sqrt(variance)
        if self._link == "log":
            return expected, expected * np.sqrt(np.expm1(variance))
        square = expected_square(self._link, mean, variance)
        return expected, np.sqrt(np.maximum(square - expected**2, 0.0))

    @available_if(_counted)  # type: ignore[untyped-decorator]
    @answering_lists
    def predict_interval(
        self,
        X: Any,
        level: float = 0.9,
        of: Literal["mean", "target"] = "mean",
        *,
        offset: Any = None,
        exposure: Any = None,
        random_state: Any = 0,
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of central intervals of the expected target (of="mean") or of a new target (from draws)."""
        check_level(level)
        check_choice("of", of, ["mean", "target"])
        if of == "target":
            rng = generator_of(random_state)
            made = list(self._new_targets(X, rng, DRAWS, offset, exposure))
            ends = [np.quantile(draws, _tails(level), axis=0) for draws in made]
            low, high = np.concatenate(ends, axis=1)
            return low, high
        mean, variance = self._predictor(X, offset, exposure)
        width = _normal_quantile(level) * np.sqrt(variance)
        return response(self._link, mean - width), response(self._link, mean + width)

    def sample(
        self, X: Any, random_state: Any = None, *, offset: Any = None, exposure: Any = None
    ) -> NDArray[Any]:
        """New targets for rows X from the posterior predictive distribution (binomial: of one trial)."""
        rng = (
            random_state
            if isinstance(random_state, np.random.Generator)
            else generator_of(random_state)
        )
        if self.family in LABELLED:
            self._refuse_exposure(exposure)
            chance, _ = self._chances(X, offset)
            draws = rng.random((len(chance), 1))
            return np.asarray(self.classes_[(draws > chance.cumsum(1)[:, :-1]).sum(1)])
        made = self._new_targets(X, rng, 1, offset, exposure)
        return np.concatenate([draws[0] for draws in made])

    def _new_targets(
        self, X: Any, rng: np.random.Generator, n_draws: int, offset: Any, exposure: Any
    ) -> Iterator[FloatArray]:
        """New targets (n_draws, rows), a block of rows at a time: all rows have the same draws of the parameters."""
        rows = self._checked_rows(X)
        known = self._known_offset(X, rows, offset, exposure)
        design, (shift, scale, _) = self._design(rows), self._target
        theta = np.asarray(self._belief_normal.sample(rng, n_draws))
        family, size = self._family, design.shape[1]
        for part in _blocks(len(rows), n_draws):
            eta = shift + scale * theta[:, :size] @ design[part].T + known[part]
            yield new_targets(
                family,
                self._link,
                eta,
                rng,
                dispersion=self._noise_of(theta) if family in DISPERSED else None,
                freedom=float(self.degrees_of_freedom),
            )

    def _noise_of(self, theta: FloatArray) -> FloatArray:
        """Noise variance or dispersion of draws in agreed units (n_draws, 1), in the data's.

        Where its posterior is skewed, the draw has the same rank there as among q's.
        """
        if self._log_dispersion is None:
            return np.asarray(self._target.scale**2 * np.exp(theta[:, -1:]))
        p = self._belief_normal.parameters()
        rank = ndtr((theta[:, -1:] - p["mean"][-1]) / np.sqrt(p["covariance"][-1, -1]))
        return np.exp(self._log_dispersion.quantile(rank))

    @available_if(_labelled)  # type: ignore[untyped-decorator]
    @answering_lists
    def predict_proba(self, X: Any, return_std: bool = False, *, offset: Any = None) -> Any:
        """Class probabilities averaged over the posterior (n, K).

        With ``return_std`` also the posterior standard deviation of each class's log odds.
        """
        chance, spread = self._chances(X, offset)
        return (chance, spread) if return_std else chance

    def _chances(self, X: Any, offset: Any) -> tuple[FloatArray, FloatArray]:
        """Class probabilities averaged over the posterior, and deviations of the classes' log odds."""
        if self._family == "multinomial":
            self._refuse_offset(offset)
            mean, root = self._outputs(X)
            turn = contrasts(len(self.classes_))
            wide = np.square(root).sum(2).max(1) > WIDE
            chance = np.zeros((len(mean), len(turn)))
            for rows, (points, shares) in (
                (~wide, cubature(mean.shape[1])),
                (wide, quasi_random(mean.shape[1], MANY_POINTS)),
            ):
                for point, share in zip(points, shares, strict=True) if rows.any() else ():
                    outputs = mean[rows] + root[rows] @ point
                    chance[rows] += share * softmax(outputs @ turn.T, axis=1)
            return chance, np.sqrt(np.square(turn @ root).sum(-1))
        mean, variance = self._predictor(X, offset)
        spread = np.sqrt(variance)[:, None]
        if self._family == "ordinal":
            return self._ordered_chances(X, offset), spread
        chance = expected_response(self._link, mean, variance)
        return np.column_stack([1.0 - chance, chance]), spread

    @available_if(_labelled)  # type: ignore[untyped-decorator]
    @answering_lists
    def predict_proba_interval(
        self, X: Any, level: float = 0.9, *, offset: Any = None, random_state: Any = 0
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of central posterior intervals of each class's probability (n, K); from draws with more than two classes."""
        check_level(level)
        if self._family == "bernoulli":
            mean, variance = self._predictor(X, offset)
            return two_class_interval(self._link, mean, variance, level)
        rng = generator_of(random_state)
        ends = [
            np.quantile(chances, _tails(level), axis=0)
            for chances in self._drawn_chances(X, rng, DRAWS, offset)
        ]
        low, high = np.concatenate(ends, axis=1)
        return low, high

    def _drawn_chances(
        self, X: Any, rng: np.random.Generator, n_draws: int, offset: Any
    ) -> Iterator[FloatArray]:
        """Class probabilities (n_draws, rows, K) under draws of the parameters, a block of rows at a time."""
        rows = self._checked_rows(X)
        design, n_classes = self._design(rows), len(self.classes_)
        size = design.shape[1]
        theta = np.asarray(self._belief_normal.sample(rng, n_draws))
        if self._family == "multinomial":
            self._refuse_offset(offset)
            for part in _blocks(len(rows), n_draws * n_classes):
                outputs = theta.reshape(n_draws, -1, size) @ design[part].T
                yield np.exp(log_softmax_of(np.swapaxes(outputs, 1, 2), n_classes))
            return
        known = self._known_offset(X, rows, offset, None)
        for part in _blocks(len(rows), n_draws * n_classes):
            eta = self._target.shift + theta[:, :size] @ design[part].T + known[part]
            yield np.exp(log_ordered(eta, theta[:, size:], self._link))

    @available_if(_labelled)  # type: ignore[untyped-decorator]
    @answering_lists
    def decision_function(self, X: Any, *, offset: Any = None) -> FloatArray:
        """Posterior mean of the linear predictor (n,), or (n, K) with more than two classes that have no order."""
        if self._family == "multinomial":
            self._refuse_offset(offset)
            return self._outputs(X)[0] @ contrasts(len(self.classes_)).T
        mean = self._predictor(X, offset)[0]
        if self._family == "ordinal":
            # cut points are seen from x = 0, predictors inside from the agreed means
            mean = mean - self._target.shift + self._units.shift @ self.coef_[0]
        return mean

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        if self._family != "multinomial" or not isinstance(
            self.posterior_.agreed, MultivariateNormal
        ):
            return super()._draws(rng, n_draws)
        turn, d = contrasts(len(self.classes_)), np.shape(self.coef_)[1]
        values = self.posterior_.sample(rng, n_draws)
        by_class = turn @ values.reshape(n_draws, turn.shape[1], -1)  # (draws, K, d + 1)
        found = {"coef": by_class[..., :d]}
        return found | ({"intercept": by_class[..., d]} if self._has_intercept else {})

    def _pointwise(
        self, draws: dict[str, FloatArray], seed: Any, X: Any, y: Any, **row_values: Any
    ) -> Pointwise:
        """Of targets, under the draws of all parameters that the seed gave."""
        labelled = self._family in ("bernoulli", "ordinal", "multinomial")
        allowed = {"trials"} if self._family == "binomial" else set()
        allowed |= set() if self._family == "multinomial" else {"offset"}
        self._refuse_row_values(row_values, allowed | (set() if labelled else {"exposure"}))
        rows = self._checked_rows(X)
        target, rng = self._known_targets(X, y, rows), np.random.default_rng([seed, 1])
        n_draws = len(draws["coef"])
        theta = self.posterior_.agreed.sample(np.random.default_rng(seed), n_draws)
        theta = np.asarray(theta).reshape(n_draws, -1)
        design, (shift, scale, _) = self._design(rows), self._target
        size, family = design.shape[1], self._family
        trials = row_values.pop("trials", None)
        known = self._known_offset(X, rows, **{"offset": None, "exposure": None, **row_values})
        eta = shift + scale * theta[:, :size] @ design.T + known
        if labelled:
            unknown = sorted(set(target.tolist()) - set(self.classes_.tolist()))
            if unknown:
                raise ValueError(f"y has {unknown[:3]}, the model knows {self.classes_.tolist()}")
            order = np.argsort(self.classes_, kind="stable")
            positions = order[np.searchsorted(self.classes_, target, sorter=order)]
        if family == "bernoulli":
            log_y, new = of_targets("binomial", self._link, positions.astype(float), eta, rng)
            return Pointwise({"y": positions}, {"y": log_y}, {"y": new.astype(np.int64)})
        if family in ("ordinal", "multinomial"):
            if family == "ordinal":
                log_chance = log_ordered(eta, theta[:, size:], self._link)
            else:
                outputs = theta.reshape(len(theta), -1, size) @ design.T
                log_chance = log_softmax_of(np.swapaxes(outputs, 1, 2), len(self.classes_))
            log_y, drawn = of_classes(positions, log_chance, rng)
            return Pointwise({"y": positions}, {"y": log_y}, {"y": drawn})
        dispersion = np.exp(self.posterior_.sample(np.random.default_rng(seed), len(theta))[:, -1:])
        if family == "binomial" and trials is None:
            raise ValueError("rows of a binomial model need trials, one number for each row")
        times = None if trials is None else self._row_values("trials", trials, X, [rows])[0]
        values = check_targets(family, target, times)
        freedom = float(getattr(self, "degrees_of_freedom", 0.0))
        log_y, new = of_targets(
            family,
            self._link,
            values,
            eta,
            rng,
            trials=times,
            dispersion=dispersion,
            freedom=freedom,
        )
        return Pointwise({"y": values}, {"y": log_y}, {"y": new})

    def _outputs(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Means (n, L) and roots (n, L, L) of each row's linear predictors."""
        design = self._design(self._checked_rows(X))
        p = self._belief_normal.parameters()
        size, n_outputs = design.shape[1], self._likelihood.n_outputs
        blocks = p["covariance"].reshape(n_outputs, size, n_outputs, size)
        covariance = np.einsum("na,iajb,nb->nij", design, blocks, design, optimize=True)
        ridge = 1e-14 * np.trace(covariance, axis1=1, axis2=2) + 1e-300
        root = np.linalg.cholesky(covariance + ridge[:, None, None] * np.eye(n_outputs))
        return design @ p["mean"].reshape(n_outputs, size).T, root

    def _ordered_chances(self, X: Any, offset: Any = None) -> FloatArray:
        """Probabilities of ordered classes: cut points and predictor averaged together."""
        rows = self._checked_rows(X)
        design = self._design(rows)
        q, d = self._belief_normal, design.shape[1]
        model = self._model
        middle, root = model.location(q)
        m = len(middle) - d
        points, shares = cubature(m)
        known = self._known_offset(X, rows, offset, None)
        mean = self._target.shift + design @ middle[:d] + known
        rest = np.square(design @ root[:d, m:]).sum(1)[:, None]
        below = np.zeros((len(mean), m))
        for point, share in zip(points, shares, strict=True):
            psi = middle[d:] + root[d:, :m] @ point
            cuts = psi[0] + np.append(0.0, np.cumsum(np.exp(psi[1:])))
            centre = mean + (design @ root[:d, :m]) @ point
            below += share * expected_response(self._link, cuts - centre[:, None], rest)
        edges = np.column_stack([np.zeros(len(mean)), below, np.ones(len(mean))])
        return np.maximum(np.diff(edges, axis=1), 0.0)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> float:
        """Accuracy where targets are labels, R^2 of expected targets otherwise (binomial: of y / trials); y may be in the formula."""
        from sklearn.metrics import accuracy_score, r2_score  # 10 MB that a fit does not need

        beside = {"offset": offset, "exposure": exposure}
        given = {**beside, "trials": trials, "sample_weight": sample_weight}
        X, y, given = self._scorable(X, y, given)
        rows = [self._checked_rows(X)]
        beside = {name: given[name] for name in beside}
        y, weight, trials = (
            self._scored(X, y),
            joined_weights(given["sample_weight"]),
            given["trials"],
        )
        if self.family in LABELLED:
            made = joined(self.predict(X, **beside))
            return float(accuracy_score(y, made, sample_weight=weight))
        if self.family == "binomial" and trials is None:
            raise ValueError("the score of a binomial model needs trials, one number for each row")
        expected = joined(self.predict(X, **beside))
        if trials is not None:
            times = self._row_values("trials", trials, X, rows)[0]
            tried = times > 0
            y, expected = y[tried] / times[tried], expected[tried]
            weight = None if weight is None else weight[tried]
        return float(r2_score(y, expected, sample_weight=weight))


def two_class_interval(
    link: str, mean: FloatArray, variance: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Ends of the intervals of both classes' probabilities (n, 2), from the second's linear predictor."""
    width = _normal_quantile(level) * np.sqrt(variance)
    low, high = response(link, mean - width), response(link, mean + width)
    return np.column_stack([1.0 - high, low]), np.column_stack([1.0 - low, high])


def expected_square(link: str, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """E[inverse link(eta)^2]."""
    return average(link, 2, mean, variance)


def _tails(level: float) -> list[float]:
    return [0.5 - 0.5 * level, 0.5 + 0.5 * level]


def _blocks(n_rows: int, per_row: int) -> Iterator[slice]:
    """Consecutive rows with so many numbers each that a block fits into memory; one block where there are no rows."""
    size = max(LARGEST_BLOCK // per_row, 1)
    return (slice(i, i + size) for i in range(0, max(n_rows, 1), size))


def _normal_quantile(level: float) -> float:
    return float(ndtri(0.5 + 0.5 * level))
