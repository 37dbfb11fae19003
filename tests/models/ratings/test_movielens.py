"""Promises on real ratings: MovieLens-100K, its published folds u1-u5."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dmfvi import Network, RatingFactorization
from dmfvi.readers import read_ratings

pytestmark = pytest.mark.filterwarnings("ignore:.*items have no rating:UserWarning")


def folder() -> Path:
    root = Path(__file__).resolve().parents[2]
    places = [Path(os.environ["DMFVI_DATA"])] if "DMFVI_DATA" in os.environ else []
    for place in [*places, root.parent / "shared" / "data", root.parents[1] / "shared" / "data"]:
        found = place / "ratings" / "ml-100k"
        if found.exists():
            return found
    pytest.skip(
        "MovieLens-100K is not here: set DMFVI_DATA to the folder that holds ratings/ml-100k"
    )


def fold(number: int) -> tuple:
    train = read_ratings(folder() / f"u{number}.base")
    test = read_ratings(folder() / f"u{number}.test")
    asked = test.user_ids[test.users], test.item_ids[test.items], test.ratings.astype(float)
    return train, asked


def test_five_folds_are_predicted_as_well_as_the_best_and_intervals_are_honest() -> None:
    scores = []
    for number in range(1, 6):
        train, test = fold(number)
        model = RatingFactorization(12, random_state=0).fit(train)
        scores.append(model.evaluate(*test))
    assert np.mean([s.rmse for s in scores]) < 0.885
    assert 0.89 < np.mean([s.coverage for s in scores]) < 0.91


def test_without_side_information_it_is_as_good_as_its_peers() -> None:
    """One noise level and no coordinates of choice: the model of the peers, at most 0.904."""
    errors = []
    for number in (1, 2, 3, 4, 5):
        train, test = fold(number)
        model = RatingFactorization(12, noise="shared", n_choice_features=0, random_state=0)
        errors.append(model.fit(train).evaluate(*test).rmse)
    assert np.mean(errors) < 0.904


def test_ten_nodes_give_the_pooled_answer() -> None:
    """Of few components: that sums agree does not depend on the rank."""
    train, test = fold(1)
    pooled = RatingFactorization(4, random_state=0).fit(train)
    nodes = RatingFactorization(4, network=Network.ring(10), random_state=0).fit(train)
    worst = max(p.distance(pooled.posterior_) for p in nodes.node_posteriors_)
    assert worst < 1e-6
    for node in (0, 7):
        error = nodes.at_node(node).evaluate(*test).rmse
        assert error == pytest.approx(pooled.evaluate(*test).rmse, abs=1e-6)
