"""Bad calls of the Python interface: the right error, in one sentence that says what was received and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dmfvi
from dmfvi import (
    PPCA,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPCA,
    BayesianPoissonRegression,
    CategoricalHMM,
    CoxRegression,
    Federation,
    GaussianHMM,
    LatentDirichletAllocation,
    Links,
    MixedModel,
    MixtureOfPCA,
    Network,
    RatingFactorization,
    StructureFromMotion,
    SVDFactorization,
    consensus,
    engines,
    infer,
)
from dmfvi.datasets import make_cube, make_low_rank
from dmfvi.families import Gamma, Normal
from dmfvi.models import PoissonGamma
from dmfvi.readers import read_table, read_tracks

pandas = pytest.importorskip("pandas")
X = make_low_rank(30, 4, 1, noise=0.3).data
Y = np.arange(30) % 2
FRAME = pandas.DataFrame(X, columns=list("abcd"))
GAPS = FRAME.mask(FRAME > 1.5)
WORDS = FRAME.assign(ward="general", day=pandas.Timestamp("2020-01-01"))
COUNTS = np.random.default_rng(0).poisson(3.0, size=(20, 4)).astype(float)
RATINGS = ([0, 0, 1, 2], [0, 1, 1, 0], [5.0, 3.0, 4.0, 1.0])
RING = Network.ring(3)


class Call(NamedTuple):
    """What is called, what it must say, and its kind of error."""

    call: Callable[[], Any]
    says: str
    error: type[Exception] = ValueError


CALLS = {
    # networks and federations
    "ring of none": Call(lambda: Network.ring(0), "node"),
    "two parts": Call(lambda: Network.from_edges([(0, 1), (2, 3)]), "add an edge between 0 and 2"),
    "a loop": Call(lambda: Network.from_edges([(0, 0), (0, 1)]), "has self-loops at [0]"),
    "half a node": Call(lambda: Network.ring(3.5), "whole number of nodes"),
    "no network": Call(
        lambda: BayesianPCA(1, network=Federation(None)).fit(X), "received NoneType", TypeError
    ),
    "no jobs": Call(
        lambda: BayesianPCA(1, network=Federation(RING, n_jobs=0)).fit(X), "n_jobs must be"
    ),
    "a late past": Call(lambda: Links(delay=-1), "delay must be a whole number"),
    "an unknown rule": Call(lambda: consensus.make("magic", RING), "magic"),
    "an unknown engine": Call(lambda: engines.make("cloud"), "cloud"),
    "a lossless loss": Call(lambda: Links(loss=1.5), "loss"),
    "a word as network": Call(lambda: BayesianPCA(1, network="ring").fit(X), "network", TypeError),
    "a rule that is none": Call(
        lambda: BayesianPCA(1, network=Federation(RING, consensus="magic")).fit(X), "magic"
    ),
    # shards
    "fewer shards": Call(
        lambda: BayesianPCA(1, network=RING).fit([X, X]), "2 shards for a network of 3"
    ),
    "other widths": Call(
        lambda: BayesianPCA(1, network=RING).fit([X, X, X[:, :2]]), "different numbers of features"
    ),
    "an empty shard": Call(
        lambda: BayesianPCA(1, network=RING).fit([X, X, X[:0]]), "shard 2 is empty"
    ),
    "other columns": Call(
        lambda: BayesianPCA(1, network=RING).fit([FRAME, FRAME, FRAME[list("abdc")]]),
        "shard 2 has columns ['d', 'c']",
    ),
    "words in a shard": Call(
        lambda: BayesianPCA(1, network=RING).fit([FRAME, WORDS, FRAME]),
        "shard 1 has columns ['ward'",
    ),
    "too few rows": Call(
        lambda: BayesianPCA(1, network=RING).fit(X[:2]), "cannot be split over 3 nodes"
    ),
    # tables
    "words": Call(lambda: BayesianPCA(1).fit(WORDS), "columns ['ward', 'day'] hold text or dates"),
    "words to predict": Call(
        lambda: BayesianPCA(1).fit(FRAME).transform(WORDS), "columns ['ward', 'day'] hold text"
    ),
    "infinity": Call(lambda: BayesianPCA(1).fit(np.where(X > 1, np.inf, X)), "inf"),
    "a vector": Call(lambda: BayesianPCA(1).fit(X[:, 0]), "2D array"),
    "nothing": Call(lambda: BayesianPCA(1).fit(X[:0]), "0 sample"),
    "a column of gaps": Call(
        lambda: BayesianPCA(1).fit(FRAME.assign(b=np.nan)),
        "no node has an observed value of feature 1 ('b')",
    ),
    "other names": Call(
        lambda: BayesianPCA(1).fit(FRAME).transform(FRAME.rename(columns={"a": "z"})),
        "eature names",
    ),
    "another order": Call(
        lambda: BayesianPCA(1).fit(FRAME).transform(FRAME[list("dcba")]), "eature names"
    ),
    "another order in a list": Call(
        lambda: BayesianPCA(1).fit(FRAME).transform([FRAME, FRAME[list("dcba")]]), "eature names"
    ),
    "other width": Call(lambda: BayesianPCA(1).fit(X).transform(X[:, :2]), "features"),
    "a dict": Call(
        lambda: BayesianPCA(1).fit({"a": [1, 2]}), "pass an array or a frame", TypeError
    ),
    "a scalar": Call(lambda: BayesianPCA(1).fit(3), "2D array"),
    "three axes": Call(lambda: BayesianPCA(1).fit(np.zeros((3, 3, 3))), "dim 3"),
    "complex numbers": Call(lambda: BayesianPCA(1).fit(1j * X), "Complex data not supported"),
    "spans of time": Call(
        lambda: BayesianPCA(1).fit(FRAME.assign(t=pandas.to_timedelta(np.arange(30), "D"))),
        "columns ['t'] hold text or dates",
    ),
    "categories": Call(
        lambda: BayesianPCA(1).fit(FRAME.assign(k=pandas.Categorical(["u", "v"] * 15))),
        "columns ['k'] hold text or dates",
    ),
    "huge values": Call(
        lambda: BayesianPCA(1).fit(FRAME * 1e200), "column 'a' has values of size 1.21e+200"
    ),
    "tiny values": Call(lambda: BayesianGaussianMixture(2).fit(X * 1e-200), "below 1e-70"),
    "huge values in a shard": Call(
        lambda: BayesianPCA(1, network=RING).fit([X, X * 1e99, X]), "shard 1: column 1 has values"
    ),
    "huge values to predict": Call(
        lambda: BayesianLinearRegression().fit(X, Y).predict(X * 1e300), "above 1e+70"
    ),
    "a row to predict": Call(
        lambda: BayesianLinearRegression().fit(X, Y).predict(X[0]), "Reshape your data"
    ),
    # parameters
    "no components": Call(lambda: BayesianPCA(0).fit(X), "n_components must be a whole number"),
    "half a component": Call(
        lambda: BayesianPCA(1.5).fit(X), "n_components must be a whole number"
    ),
    "too many": Call(lambda: BayesianPCA(9).fit(X), "n_components=9 is larger than n_features=4"),
    "no tol": Call(lambda: BayesianPCA(1, tol=0).fit(X), "tol must be positive"),
    "endless tol": Call(lambda: BayesianPCA(1, tol=np.inf).fit(X), "tol must be finite"),
    "a word as tol": Call(lambda: BayesianPCA(1, tol="1e-3").fit(X), "tol must be positive"),
    "a negative seed": Call(
        lambda: BayesianPCA(1, random_state=-1).fit(X),
        "random_state must be a whole number from 0 to 4294967295, received -1",
    ),
    "a generator as seed": Call(
        lambda: BayesianPCA(1, random_state=np.random.default_rng(0)).fit(X),
        "random_state must be a whole number",
    ),
    "no iterations": Call(
        lambda: BayesianPCA(1, max_iter=0).fit(X), "max_iter must be a whole number"
    ),
    "a prior that is none": Call(
        lambda: BayesianPCA(1, prior=3).fit(X), "prior must be dmfvi.PcaPrior", TypeError
    ),
    "noise": Call(lambda: BayesianPCA(1, noise="loud").fit(X), "noise must be one of"),
    "covariance": Call(
        lambda: BayesianPCA(1, covariance_type="round").fit(X), "covariance_type must be one of"
    ),
    "forgetting": Call(
        lambda: BayesianPCA(1).fit(X).partial_fit(X, forgetting=2), "forgetting must lie"
    ),
    "node 9": Call(lambda: BayesianPCA(1).fit(X).at_node(9), "node must be below 1"),
    "level": Call(lambda: BayesianPCA(1).fit(X).impute_interval(X, 2), "level must lie in (0, 1)"),
    "a word as level": Call(
        lambda: BayesianPCA(1).fit(X).impute_interval(X, "0.9"), "level must lie in (0, 1)"
    ),
    "an unknown quantity": Call(
        lambda: BayesianPCA(1).fit(X).uncertainty("nope"), "has no uncertainty of 'nope'"
    ),
    "negative weights": Call(
        lambda: BayesianPCA(1).fit(X, sample_weight=-np.ones(30)), "must be finite and not negative"
    ),
    "draws": Call(
        lambda: BayesianPCA(1).fit(X).impute(X, n_draws=-1), "n_draws must be a whole number"
    ),
    "latent rows": Call(
        lambda: BayesianPCA(1).fit(X).inverse_transform(X), "expected latent rows of 1"
    ),
    "ppca": Call(lambda: PPCA(9).fit(X), "n_components=9"),
    "svd": Call(lambda: SVDFactorization(9).fit(X), "n_components=9"),
    "mixture": Call(lambda: BayesianGaussianMixture(0).fit(X), "n_components"),
    "mixture of pca": Call(lambda: MixtureOfPCA(2, n_components=9).fit(X), "n_components=9"),
    # regression
    "gaps to predict": Call(
        lambda: BayesianLinearRegression().fit(FRAME, Y).predict(GAPS),
        "a BayesianLinearRegression needs complete rows",
    ),
    "gaps in a shard": Call(
        lambda: BayesianLinearRegression(network=RING).fit([FRAME, GAPS, FRAME], [Y, Y, Y]),
        "shard 1 contains NaN, row",
    ),
    "no target": Call(lambda: BayesianLinearRegression().fit(X, None), "requires y"),
    "other lengths": Call(lambda: BayesianLinearRegression().fit(X, Y[:5]), "inconsistent"),
    "one class": Call(
        lambda: BayesianLogisticRegression().fit(X, 0 * Y), "y has one class only, 0"
    ),
    "unknown labels": Call(
        lambda: BayesianLogisticRegression(classes=[0, 2]).fit(X, Y),
        "labels [1] that are not in classes",
    ),
    "one target for shards": Call(
        lambda: BayesianLinearRegression(network=RING).fit([X, X, X], Y), "pass y as a list too"
    ),
    "endless precision": Call(
        lambda: BayesianLinearRegression(prior_precision=np.inf).fit(X, Y), "positive and finite"
    ),
    "a word as precision": Call(
        lambda: BayesianLinearRegression(prior_precision="learned").fit(X, Y),
        "prior_precision of a BayesianLinearRegression must be positive",
    ),
    "a word as precision of a Cox model": Call(
        lambda: CoxRegression(prior_precision="x").fit(X, np.abs(X[:, 0]) + 1, Y),
        "prior_precision of a CoxRegression must be positive",
    ),
    "huge targets": Call(
        lambda: BayesianLinearRegression().fit(X, 1e200 * X[:, 0]), "y has values of size 1.21e+200"
    ),
    "huge counts": Call(
        lambda: BayesianPoissonRegression().fit(X, 1e300 * Y), "y has values of size 1e+300"
    ),
    "no labels": Call(
        lambda: BayesianLogisticRegression().fit(X, np.array(["a", None] * 15, dtype=object)),
        "y has no label in row 1 (counted from 0)",
    ),
    "labels of several types": Call(
        lambda: BayesianLogisticRegression().fit(X, np.array(["a", 1] * 15, dtype=object)),
        "y has labels of several types ['int', 'str']",
    ),
    "labels of another type in a shard": Call(
        lambda: BayesianLogisticRegression(network=RING).fit([X, X, X], [Y, Y, Y.astype(str)]),
        "y is text in shard 2 and numbers in shard 0",
    ),
    "negative weights of rows": Call(
        lambda: BayesianLinearRegression().fit(X, Y, sample_weight=-np.ones(30)),
        "sample_weight must not be negative",
    ),
    "too few weights": Call(
        lambda: BayesianLinearRegression().fit(X, Y, sample_weight=np.ones(3)),
        "one finite number for each of 30 rows, received 3",
    ),
    "a list of too few targets": Call(
        lambda: BayesianLinearRegression(network=RING).fit([X, X, X], [Y, Y]), "do not match"
    ),
    "a target too short in a shard": Call(
        lambda: BayesianLinearRegression(network=RING).fit([X, X, X], [Y, Y, Y[:5]]),
        "do not match",
    ),
    "negative times": Call(lambda: CoxRegression().fit(X, -np.ones(30), Y), "zero or more"),
    "another event": Call(
        lambda: CoxRegression().fit(X, np.ones(30), Y + 1), "event must be 1 (it happened) or 0"
    ),
    "few groups": Call(
        lambda: MixedModel().fit(X, Y, groups=[1, 2]), "one label for each of 30 rows, received 2"
    ),
    # counts and chains
    "negative counts": Call(lambda: LatentDirichletAllocation(2).fit(-COUNTS), "counts"),
    "parts of counts": Call(lambda: LatentDirichletAllocation(0).fit(COUNTS), "n_components"),
    "symbols": Call(lambda: CategoricalHMM(2).fit(np.array([[0.5], [1.0]])), "symbols"),
    "lengths": Call(lambda: GaussianHMM(2).fit(X, lengths=[3, 4]), "lengths"),
    "few sequences": Call(
        lambda: GaussianHMM(2, network=RING).fit(X), "cannot be split over 3 nodes"
    ),
    # ratings and tracks
    "ratings of nan": Call(
        lambda: RatingFactorization(1).fit(([0, 1], [0, 1], [1.0, np.nan])), "not a finite number"
    ),
    "rank 99": Call(
        lambda: RatingFactorization(99).fit(RATINGS), "n_components must be at most 32"
    ),
    "off the scale": Call(
        lambda: RatingFactorization(1, rating_scale=(1, 2)).fit(RATINGS),
        "is outside the scale 1..2",
    ),
    "huge ratings": Call(
        lambda: RatingFactorization(1).fit(([0, 1], [0, 1], [1.0, 1e50])), "is above 3.4e+38"
    ),
    "ratings that are words": Call(
        lambda: RatingFactorization(1).fit(([0, 1], [0, 1], ["a", "b"])),
        "ratings must be numbers",
        TypeError,
    ),
    "a negative id": Call(
        lambda: RatingFactorization(1).fit(([-1, 0], [0, 1], [1.0, 2.0])), "is negative"
    ),
    "odd rows": Call(lambda: StructureFromMotion().fit(X[:29]), "29 rows, an odd number"),
    "few points": Call(lambda: StructureFromMotion().fit(X[:, :2]), "points"),
    "metric": Call(lambda: StructureFromMotion(metric="round").fit(X), "metric must be one of"),
    # models of one's own
    "a class": Call(
        lambda: infer(PoissonGamma, [COUNTS]), "an instance of a ConjugateModel", TypeError
    ),
    "two shards": Call(
        lambda: infer(PoissonGamma(4), [COUNTS, COUNTS]), "2 shards for a network of 1"
    ),
    "a start": Call(
        lambda: infer(PoissonGamma(4), [COUNTS], n_init=0), "n_init must be a whole number"
    ),
    "an improper start": Call(
        lambda: infer(PoissonGamma(4), [COUNTS], start=Gamma(np.full(4, -3.0), np.ones(4))),
        "is no proper distribution",
    ),
    # families
    "parameters": Call(lambda: Gamma(1.0), "takes 2 natural parameters"),
    "shapes": Call(lambda: Normal(np.ones(2), np.ones(3)), "do not broadcast"),
    "an interval": Call(lambda: Gamma.from_parameters(1, 1).interval(0), "level must lie"),
    "a length": Call(lambda: Gamma.from_parameters(1, 1).unpack(np.ones(5)), "unpacks 2 numbers"),
    # files
    "unfitted": Call(lambda: dmfvi.save(BayesianPCA(1), "x.npz"), "not fitted"),
    "no npz": Call(lambda: dmfvi.save(BayesianPCA(1).fit(X), "x.txt"), "must end in .npz"),
    "no estimator": Call(lambda: dmfvi.save(3, "x.npz"), "cannot save a int", TypeError),
    "no file": Call(lambda: dmfvi.load("nowhere"), "fit a model there first", FileNotFoundError),
    "no table": Call(lambda: read_table("nowhere.csv"), "does not exist", FileNotFoundError),
    "no tracks": Call(lambda: read_tracks("nowhere.csv"), "does not exist", FileNotFoundError),
    "decimal": Call(lambda: read_table("x.csv", decimal="x"), "decimal must be . or ,"),
    "cameras": Call(
        lambda: StructureFromMotion(network=RING).fit(make_cube(n_cameras=2, n_frames=4).hidden),
        "2",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls_say_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CALLS[name]
    with pytest.raises(case.error) as caught:
        case.call()
    said = str(caught.value)
    assert case.says in said
    assert "np.float64" not in said
    assert not list(tmp_path.iterdir())
