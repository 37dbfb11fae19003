"""The examples of docs/ratings.md, in their order."""
# ruff: noqa

from dmfvi import Network, RatingFactorization
from dmfvi.datasets import make_ratings, split_ratings

train, test = split_ratings(
    make_ratings(50_000).ratings
)  # or (users, items, ratings) with your ids
model = RatingFactorization(12, network=Network.ring(10)).fit(train)
mean, std = model.predict(test[0], test[1], return_std=True)
print(model.evaluate(*test), model.recommend(7, 5, strategy="ucb").items)
