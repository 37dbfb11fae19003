"""Compile every kernel ahead, with the types of real fits: dmfvi warmup."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


def _pca() -> None:
    from dmfvi.models.pca.kernels import latent_posteriors_compiled

    latent_posteriors_compiled(np.ones((4, 3)), np.ones((4, 2)), 1.0)


def _chains() -> None:
    from dmfvi.models.chains.kernels import chain_posteriors, most_probable_states

    given = np.zeros((4, 2)), np.zeros(2), np.zeros((2, 2)), np.array([0, 2, 4])
    chain_posteriors(*given)
    most_probable_states(*given)


def _topics() -> None:
    from dmfvi import LatentDirichletAllocation

    counts = np.random.default_rng(0).poisson(3.0, size=(4, 20)).astype(float) + 1
    LatentDirichletAllocation(2, max_iter=1, random_state=0).fit(counts).transform(counts)


def _regression() -> None:
    from dmfvi import GeneralizedLinearModel

    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(30, 2)), np.arange(30) % 3
    models = (
        (GeneralizedLinearModel(family="bernoulli", max_iter=2), labels > 0),
        (GeneralizedLinearModel(family="poisson", max_iter=2), labels),
        (GeneralizedLinearModel(family="multinomial", max_iter=2), labels),
        (GeneralizedLinearModel(family="negative-binomial", max_iter=2), labels),
        (GeneralizedLinearModel(family="ordinal", classes=[0, 1, 2], max_iter=2), labels),
    )
    for model, y in models:
        model.fit(x, y).predict(x)


def _survival() -> None:
    from dmfvi import CoxRegression

    rng = np.random.default_rng(0)
    x, time, event = rng.normal(size=(30, 2)), rng.integers(1, 9, 30), np.arange(30) % 2
    for ties in ("efron", "breslow"):
        model = CoxRegression(ties=ties, max_iter=2)
        model.fit(x, time=time, event=event).score(x, np.column_stack([time, event]))


def _mixed() -> None:
    from dmfvi import MixedModel, Network

    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(40, 1)), np.arange(40) % 8
    MixedModel(family="bernoulli", max_iter=2).fit(x, rng.integers(0, 2, 40), groups=groups)
    counts = rng.poisson(2.0, 40)
    MixedModel(family="negative-binomial", max_iter=2).fit(x, counts, groups=groups)
    halves = [slice(0, 20), slice(20, 40)]
    parts = [[whole[half] for half in halves] for whole in (x, rng.integers(0, 2, 40), groups)]
    shared = MixedModel(
        family="bernoulli", network=Network.complete(2), across_sites=True, max_iter=2
    )
    shared.fit(*parts)


@contextmanager
def _every_rating_in_single_precision() -> Iterator[None]:
    from dmfvi.models.ratings import kernels

    before, kernels.MOST_DOUBLE = kernels.MOST_DOUBLE, 0
    try:
        yield
    finally:
        kernels.MOST_DOUBLE = before


def _ratings(n_components: int) -> None:
    from dmfvi import RatingFactorization
    from dmfvi.datasets import make_ratings
    from dmfvi.readers import read_ratings

    made = make_ratings(3000, n_users=100, n_items=60, rank=2, seed=0).ratings.tocoo()
    triples = made.row, made.col, made.data
    model = RatingFactorization(n_components, max_iter=2, random_state=0).fit(made)
    with _every_rating_in_single_precision():  # as in tables of more than a million
        RatingFactorization(n_components, max_iter=1, random_state=0).fit(made)
    model.predict(made.row[:5], made.col[:5], return_std=True)
    twice = tuple(np.concatenate([each, each[:9]]) for each in triples)
    RatingFactorization(n_components, max_iter=1, random_state=0).fit(twice)
    with tempfile.TemporaryDirectory() as folder:
        table, netflix = Path(folder) / "ratings.csv", Path(folder) / "mv_0000001.txt"
        table.write_text("user,item,rating\n" + "1,2,3\n2,2,4\n")
        netflix.write_text("1:\n7,3,2005-01-01\n8,4,2005-01-01\n")
        for file in (table, netflix):
            read_ratings(file, cache=False)


#: what is compiled, by the name that people know it under
STEPS: dict[str, Callable[[], None]] = {
    "Bayesian PCA with missing data": _pca,
    "hidden Markov models": _chains,
    "topics": _topics,
    "regression": _regression,
    "survival": _survival,
    "mixed models": _mixed,
}


def warm_up(components: Iterable[int] = (12,)) -> Iterator[str]:
    """Compile all kernels; yields the name of each step before it begins.

    One kernel of ratings is compiled for each number of ``components``, which makes its sums twice as fast.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, step in STEPS.items():
            yield name
            step()
        for n in components:
            yield f"ratings, {n} components"
            _ratings(n)
