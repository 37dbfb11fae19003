"""Ratings: convergence and bounds as they are, counts of what is new, rankings."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import save_npz

from cli_run import dmfvi_command
from dmfvi import Network, RatingFactorization
from dmfvi.datasets import make_ratings
from dmfvi.models.ratings.belief import PriorKnowledge, SidePrior
from dmfvi.models.ratings.table import RatingTable
from dmfvi.models.ratings.validation import ranking
from dmfvi.readers import read_ratings

R = make_ratings(1200, n_users=60, n_items=40, rank=2, seed=0).ratings.tocoo()
TRIPLES = (R.row, R.col, R.data)


def test_a_sweep_is_no_convergence() -> None:
    once = RatingFactorization(2, max_iter=1, random_state=0).fit(TRIPLES)
    assert not once.converged_
    assert np.isnan(once.lower_bound_)
    assert "NOT converged" in repr(once)
    long = RatingFactorization(2, tol=1e-2, max_iter=2000, random_state=0).fit(TRIPLES)
    assert long.converged_


@pytest.mark.slow
def test_small_tables_converge_at_the_usual_tolerance() -> None:
    fixed = RatingFactorization(2, max_iter=1000, random_state=0).fit(TRIPLES)
    assert fixed.converged_


@pytest.mark.parametrize("network", [None, Network.ring(3)])
def test_the_bound_is_in_the_units_of_the_ratings(network: Network | None) -> None:
    users, items, values = TRIPLES
    one, two = (
        RatingFactorization(2, network=network, max_iter=5, random_state=0).fit(
            (users, items, factor * values)
        )
        for factor in (1.0, 4.0)
    )
    gap = one.lower_bound_ - two.lower_bound_
    assert gap == pytest.approx(len(values) * np.log(4.0), rel=1e-6)
    assert one.history_["objective"][-1] == one.lower_bound_


def test_the_hierarchy_without_rows_has_no_divergence() -> None:
    """Coefficients that nothing was learned of are as their prior: only the variances' density is left."""
    k, ridge = 3, np.array([2.0, 5.0, 0.5, 7.0])
    knowledge = PriorKnowledge(np.eye(k))
    old = SidePrior(np.zeros((k, 4)), np.eye(k), ridge)
    made = knowledge.learn(old, np.eye(k), np.zeros((k, 4)), np.zeros((4, 4)), 10.0)
    np.testing.assert_allclose(made.ridge, ridge)
    left = 0.5 * made.log_det_precision - 0.5 * np.trace(made.precision)
    assert made.log_density == pytest.approx(left)


def test_users_and_items_without_a_rating_are_counted() -> None:
    users, items, values = TRIPLES
    kept = (items != 3) & (users != 5)
    catalogue = RatingFactorization(2, max_iter=3, random_state=0)
    table = RatingTable.of(users, items, values)  # its ids are known, their ratings are held out
    with pytest.warns(UserWarning, match="1 users and 1 items have no rating"):
        catalogue.fit(table[kept])
    score = catalogue.evaluate(users[~kept], items[~kept], values[~kept])
    assert score.n_unknown == score.n_ratings == (~kept).sum()
    assert (score.n_unknown_users, score.n_unknown_items) == (1, 1)
    known = catalogue.evaluate(users[kept], items[kept], values[kept])
    assert known.n_unknown == known.n_unknown_users == known.n_unknown_items == 0


def test_the_shell_counts_items_without_a_rating(tmp_path: Path) -> None:
    users, items, values = TRIPLES
    lines = [f"{u},{i},{r}" for u, i, r in zip(users, items, values, strict=True)]
    lines += [f"{u},{1000 + u},3" for u in range(30)]  # items with one rating each
    path = tmp_path / "r.csv"
    path.write_text("\n".join(["user,item,rating", *lines]))
    words = [
        "--components",
        1,
        "--sweeps",
        2,
        "--holdout",
        0.5,
        "--top-n",
        5,
        "--out",
        tmp_path / "m",
    ]
    said = dmfvi_command("ratings", "fit", path, *words)
    assert said.code == 0
    told = re.sub(r"[│\s]+", " ", said.out)
    found = [int(n) for n in re.findall(r"(\d+) users and (\d+) items without", told)[0]]
    assert found[1] > 5
    assert "converged" in said.out
    assert "NDCG" in said.out


def test_rankings() -> None:
    ranked = np.array([[0, 1, 2], [5, 4, 3]])
    relevant = [np.array([0]), np.array([3, 9])]
    recall, gain = ranking(ranked, relevant)
    assert recall == pytest.approx((1.0 + 0.5) / 2)
    ideal = 1.0 + 1.0 / np.log2(3)
    assert gain == pytest.approx((1.0 + (1.0 / np.log2(4)) / ideal) / 2)


@pytest.mark.parametrize("network", [None, Network.ring(3)])
def test_ranked_items_are_those_that_are_recommended(network: Network | None) -> None:
    model = RatingFactorization(2, network=network, max_iter=5, random_state=0).fit(TRIPLES)
    best = model._best(np.array([0, 25, 59]), 5)
    for row, user in zip(best, (0, 25, 59), strict=True):
        assert model.item_ids_[row].tolist() == model.recommend(user, 5).items.tolist()
    users, items, values = TRIPLES
    score = model.evaluate(users, items, values, top_n=5)
    assert score.recall == 0.0  # all of them were in the fit
    with pytest.raises(ValueError, match="lower relevant"):
        model.evaluate(users, items, values, top_n=5, relevant=99)


def test_recommendations_for_many_go_to_a_file(tmp_path: Path) -> None:
    save_npz(tmp_path / "r.npz", R.tocsr())
    table = read_ratings(tmp_path / "r.npz")
    assert len(table) == len(R.data)
    words = ["--components", 1, "--sweeps", 2, "--out", tmp_path / "m"]
    assert dmfvi_command("ratings", "fit", tmp_path / "r.npz", *words).code == 0
    (tmp_path / "who.csv").write_text("user\n3\n7\n")
    out = tmp_path / "best.csv"
    ask = ["ratings", "recommend", "--model", tmp_path / "m", "--n", 2, "--out", out]
    assert dmfvi_command(*ask, "--users", tmp_path / "who.csv").code == 0
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert [row[:2] for row in rows[1:]] == [["3", "1"], ["3", "2"], ["7", "1"], ["7", "2"]]
    assert dmfvi_command(*ask, "--users", "all").code == 0
    assert len(out.read_text().splitlines()) == 1 + 2 * len(table.user_ids)
