"""Weights count rows: two is twice, zero is not at all, at every estimator whose fit takes them, pooled and on a network."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from dmfvi import Network
from dmfvi.deploy.kinds import KINDS
from estimator_cases import CASES, N_NODES

WEIGHTED = sorted(
    kind for kind in CASES if "sample_weight" in inspect.signature(KINDS[kind].fit).parameters
)
RING = Network.ring(N_NODES)
#: Efron's ties of equal rows are not those of one row with their weight, and default breakpoints are those of the rows
SETTINGS: dict[str, dict[str, Any]] = {
    "cox-regression": {"ties": "breslow"},
    "piecewise-exponential-regression": {"breakpoints": [0.5, 1.0]},
}


def parts_of(kind: str) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Rows, some with gaps where the model takes them, and what else ``fit`` takes, of each node."""
    case = CASES[kind]
    return [case.model.arguments(part)[::2] for part in case.data]


def weights_of(parts: list[tuple[np.ndarray, dict[str, Any]]]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 4, len(rows)) for rows, _ in parts]


def fitted(kind: str, parts: list[tuple[np.ndarray, dict[str, Any]]], network: Network | None):
    model = CASES[kind].model.estimator()
    model.set_params(network=network, **SETTINGS.get(kind, {}))
    given: Any = [rows for rows, _ in parts]
    further = {name: [more[name] for _, more in parts] for name in parts[0][1]}
    if network is None:
        given = np.concatenate(given)
        further = {name: np.concatenate(each) for name, each in further.items()}
    return model.fit(given, **further)


def alike(one: Any, other: Any) -> None:
    assert one.posterior_.distance(other.posterior_) < 1e-9
    if np.isfinite(one.lower_bound_) or np.isfinite(other.lower_bound_):
        np.testing.assert_allclose(one.lower_bound_, other.lower_bound_, rtol=1e-9)


def test_the_estimators_with_weighted_sums_take_them() -> None:
    mixtures = {"bayesian-gaussian-mixture", "mixture-of-pca"}
    assert mixtures | {"bayesian-pca", "ppca", "generalized-linear-model"} <= set(WEIGHTED)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("network", [None, RING], ids=["pooled", "ring"])
@pytest.mark.parametrize("kind", WEIGHTED)
def test_whole_weights_are_repeated_rows(kind: str, network: Network | None, gaps: bool) -> None:
    parts = parts_of(kind)
    if gaps:
        if not KINDS[kind]._takes_missing:
            pytest.skip("needs complete rows")
        rng = np.random.default_rng(2)
        parts = [
            (np.where(rng.random(rows.shape) < 0.1, np.nan, rows), more) for rows, more in parts
        ]
        parts = [(np.where(np.isnan(r).all(1)[:, None], 0.0, r), more) for r, more in parts]
    weights = weights_of(parts)
    weighted = [
        (rows, {**more, "sample_weight": w.astype(float)})
        for (rows, more), w in zip(parts, weights, strict=True)
    ]
    repeated = [
        (np.repeat(rows, w, axis=0), {n: np.repeat(v, w, axis=0) for n, v in more.items()})
        for (rows, more), w in zip(parts, weights, strict=True)
    ]
    alike(fitted(kind, weighted, network), fitted(kind, repeated, network))


@pytest.mark.parametrize(
    "kind", ["bayesian-gaussian-mixture", "mixture-of-pca", "bayesian-pca", "ppca"]
)
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda n: np.ones(n - 1), "one number for each of"),
        (lambda n: -np.ones(n), "not negative"),
        (lambda n: np.full(n, np.nan), "finite"),
        (np.zeros, "zero for all rows"),
    ],
)
def test_wrong_weights_are_refused(kind: str, wrong: Any, says: str) -> None:
    rows, _ = parts_of(kind)[0]
    with pytest.raises(ValueError, match=says):
        CASES[kind].model.estimator().fit(rows, sample_weight=wrong(len(rows)))


@pytest.mark.parametrize("kind", sorted(set(CASES) - set(WEIGHTED)))
def test_other_estimators_do_not_ignore_them(kind: str) -> None:
    rows, further = parts_of(kind)[0]
    with pytest.raises(TypeError, match="sample_weight"):
        CASES[kind].model.estimator().fit(rows, **further, sample_weight=np.ones(len(rows)))
