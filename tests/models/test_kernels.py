"""Every compiled kernel equals its plain twin."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernel_twins
from dmfvi.linalg import pack_symmetric
from dmfvi.models.chains import kernels as chains
from dmfvi.models.pca.kernels import latent_posteriors_compiled, latent_posteriors_plain
from dmfvi.models.topics import kernels as documents


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_latent_posteriors(m: int, rng: np.random.Generator) -> None:
    root = rng.normal(size=(50, m, m + 1))
    second = pack_symmetric(root @ np.swapaxes(root, 1, 2))
    score = rng.normal(size=(50, m))
    plain = latent_posteriors_plain(second, score, 1.3)
    compiled = latent_posteriors_compiled(second, score, 1.3)
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("width", [0.5, 50.0, 3000.0], ids=["mild", "sharp", "beyond floats"])
@pytest.mark.parametrize("parallel_from", [0, 10**9], ids=["parallel", "serial"])
def test_chain_posteriors(
    width: float, parallel_from: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where probabilities span more than a float can hold, and transitions are all but forbidden."""
    monkeypatch.setattr(chains, "PARALLEL_FROM", parallel_from)
    starts = np.array([0, 1, 12, 40, 41, 90], dtype=np.int64)
    emission = width * rng.normal(size=(90, 4))
    step = np.log(rng.dirichlet(np.ones(4), size=4)) - width * rng.random((4, 4))
    begin = np.log(rng.dirichlet(np.ones(4)))
    plain = kernel_twins.chain_posteriors(emission, begin, step, starts)
    compiled = chains.chain_posteriors(emission, begin, step, starts)
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(compiled.states.sum(1), 1.0)
    assert compiled.pairs.sum() == pytest.approx(90 - 5)


def test_most_probable_states_by_enumeration(rng: np.random.Generator) -> None:
    from itertools import product

    emission, step = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
    begin = rng.normal(size=3)

    def value(path: tuple[int, ...]) -> float:
        moves = sum(step[a, b] for a, b in itertools.pairwise(path))
        return begin[path[0]] + moves + sum(emission[t, k] for t, k in enumerate(path))

    best = max(product(range(3), repeat=6), key=value)
    found = chains.most_probable_states(emission, begin, step, np.array([0, 6]))
    assert tuple(found) == best


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("parallel_from", [0, 10**9], ids=["parallel", "serial"])
@pytest.mark.parametrize(("k", "prior"), [(4, 0.1), (7, 1.0), (30, 0.02)])
def test_document_posteriors(
    k: int,
    prior: float,
    anew: bool,
    parallel_from: int,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with many topics of which a document uses few: the compiled one leaves the others out for a while."""
    from scipy import sparse

    monkeypatch.setattr(documents, "PARALLEL_FROM", parallel_from)
    counts = sparse.csr_array(rng.poisson(0.6, size=(30, 25)).astype(float))
    given = documents.Counts(
        counts.indptr.astype(np.int64), counts.indices.astype(np.int64), counts.data
    )
    topics = rng.dirichlet(np.full(25, 0.3), size=k).T + 1e-4
    gamma = rng.gamma(1.0, 3.0, size=(30, k)) + 0.1
    settings = (given, topics, np.full(k, prior), gamma, 1e-8, 5000, anew)
    plain = kernel_twins.document_posteriors(*settings)
    compiled = documents.document_posteriors(*settings)
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert compiled.statistics.sum() == pytest.approx(counts.sum())


def test_exp_digamma_has_full_accuracy() -> None:
    """exp psi(x) from where it all but vanishes to counts beyond any document."""
    from scipy.special import psi

    from dmfvi.models.topics._kernels_numba import exp_digamma

    x = np.logspace(-2.8, 9, 5001)
    found = np.empty_like(x)
    exp_digamma(x, found, np.empty(x.size, np.int64))
    # an exponent y is known to y * 2e-16 only
    np.testing.assert_array_less(np.abs(np.log(found) - psi(x)), 1e-15 * (4 + np.abs(psi(x))))
    tiny = np.full(3, 1e-4)
    exp_digamma(tiny, found[:3], np.empty(3, np.int64))
    assert np.all(found[:3] < 1e-300)
