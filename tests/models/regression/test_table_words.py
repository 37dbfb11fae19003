"""The table of coefficients says what was modelled: whose probability, which ratio, which rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi import BayesianLogisticRegression, GeneralizedLinearModel, MixedModel

RNG = np.random.default_rng(0)
X = pd.DataFrame({"age": RNG.normal(size=60), "dose": RNG.normal(size=60)})
DIED = (RNG.random(60) < 0.4).astype(float)
ALL = X.assign(mortality=DIED)


def fitted(kind: str) -> Any:
    model = BayesianLogisticRegression()
    if kind == "formula":
        return model.set_params(formula="mortality ~ age").fit(ALL)
    if kind == "series":
        return model.fit(X, ALL["mortality"])
    if kind == "shards":
        return model.fit([X[:30], X[30:]], [ALL["mortality"][:30], ALL["mortality"][30:]])
    return model.fit(X.to_numpy(), DIED)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("formula", "mortality"), ("series", "mortality"), ("shards", "mortality"), ("array", "y")],
)
def test_the_table_says_whose_probability_is_modelled(kind: str, name: str, tmp_path: Path) -> None:
    model = fitted(kind)
    assert f", probability of {name} = 1, " in model.summary()
    dmfvi.save(model, tmp_path / "model.npz")
    assert dmfvi.load(tmp_path / "model.npz").summary() == model.summary()


def test_the_shell_knows_the_target(tmp_path: Path) -> None:
    ALL.to_csv(tmp_path / "rows.csv", index=False)
    words = ["--model", "logistic", "--target", "mortality", "--out", tmp_path / "m"]
    for more in ([], ["--nodes", "2"]):
        assert dmfvi_command("fit", tmp_path / "rows.csv", *words, *more).code == 0
        said = dmfvi_command("show", tmp_path / "m").out
        assert "probability of mortality = 1," in " ".join(said.split())


def test_rows_with_gaps_are_told_in_one_phrase() -> None:
    holes = ALL.copy()
    holes.loc[[3, 7], "age"] = np.nan
    dropped = BayesianLogisticRegression(formula="mortality ~ age").fit(holes)
    assert ", 2 rows with missing cells dropped, " in dropped.summary()
    filled = BayesianLogisticRegression(formula="mortality ~ age", missing="impute").fit(holes)
    assert ", 2 rows with missing cells imputed by the joint Gaussian" in filled.summary()
    whole = BayesianLogisticRegression(formula="mortality ~ age").fit(ALL)
    assert ", no rows with missing cells, " in whole.summary()


def test_the_ratio_of_a_gamma_model_is_one_of_means() -> None:
    model = GeneralizedLinearModel(family="gamma").fit(
        X, np.random.default_rng(1).gamma(2.0, size=60)
    )
    assert model.coefficient_table().ratio == "ratio of means"
    counts = GeneralizedLinearModel(family="poisson").fit(
        X, np.random.default_rng(1).poisson(2.0, 60)
    )
    assert counts.coefficient_table().ratio == "rate ratio"


def test_the_table_of_several_classes_says_what_coefficients_are_relative_to() -> None:
    grade = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    text = GeneralizedLinearModel(family="multinomial").fit(X, grade).summary()
    assert "multinomial regression, softmax link" in text
    assert "relative to the mean over the classes" in text
    assert "\n0: age" in text
    rest = BayesianLogisticRegression(approximation="polya-gamma").fit(X, grade).summary()
    assert "logit link" in rest  # one class against the rest
    assert "relative to the mean" not in rest


def test_the_table_of_a_mixed_model_names_its_approximation() -> None:
    ward = np.repeat(np.arange(6), 10)
    model = MixedModel(formula="mortality ~ age", family="bernoulli")
    text = model.fit(ALL.assign(ward=ward), groups="ward").summary()
    assert "probability of mortality = 1" in text
    assert "approximation Gaussian with the mean and covariance of the posterior" in text
