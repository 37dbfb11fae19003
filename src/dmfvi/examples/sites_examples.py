"""The examples of docs/sites.md, in their order."""
# ruff: noqa

import numpy as np
import pandas as pd
from dmfvi import BayesianLogisticRegression, Network

rng = np.random.default_rng(0)


def site(n: int, level: float) -> pd.DataFrame:
    """Patients of one site."""
    age, score = rng.normal(60 + level, 12, n), rng.gamma(3.0, 6.0, n)
    chance = 1 / (1 + np.exp(-(age - 70) / 10 - (score - 20) / 8))
    return pd.DataFrame({"age": age, "score": score, "died": rng.random(n) < chance})


sites = [site(60, 0), site(140, 5), site(25, -5)]
x = [frame[["age", "score"]] for frame in sites]
y = [frame["died"].astype(int) for frame in sites]
model = BayesianLogisticRegression(network=Network.star(3)).fit(x, y)
print(model.summary())


pooled = BayesianLogisticRegression().fit(pd.concat(x), np.concatenate(y))
print(abs(model.coef_ - pooled.coef_).max())
