"""Names that people try in the shell: families as models, columns as options, lists without brackets."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from cli_run import dmfvi_command
from dmfvi.cli.fit import BY_SET
from dmfvi.deploy.kinds import FAMILIES, KINDS, ModelSettings, columns_of
from dmfvi.deploy.settings import settings_of


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng, file = np.random.default_rng(0), tmp_path / "rows.csv"
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["x", "falls", "years", "grade"])
        for x, falls in zip(rng.normal(size=40), rng.poisson(2.0, 40), strict=True):
            writer.writerow([x, falls, rng.uniform(1, 2), ["low", "mid", "high"][falls % 3]])
    return file


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "poisson"])
def test_a_family_is_a_name_of_the_generalized_linear_model(family: str) -> None:
    whole = ModelSettings.of("generalized-linear-model", family=family, target="y")
    assert ModelSettings.of(family, target="y") == whole
    with pytest.raises(ValueError, match="leave one out"):
        ModelSettings.of(family, family="poisson", target="y")


def test_short_names_are_named_with_the_kinds() -> None:
    assert ModelSettings.of("poisson", target="y").kind == "bayesian-poisson-regression"
    assert ModelSettings.of("glm", target="y").kind == "generalized-linear-model"
    for words in (["fit", __file__, "--model", "magic"], ["models", "magic"]):
        said = dmfvi_command(*words).err
        for name in ("'cox'", "'negative-binomial'", "'glm'"):
            assert name in said
    assert "Short names: " in dmfvi_command("fit", "-h").out
    assert "generalized-linear-model" in dmfvi_command("models", "gamma").out


@pytest.mark.parametrize(
    ("option", "say"),
    [
        ("--exposure years", "--set exposure=COLUMN"),
        ("--offset=years", "--set offset=COLUMN"),
        ("--weights years", "--set weight=COLUMN"),
        ("--sample-weight years", "--set weight=COLUMN"),
        ("--family gamma", "--set family=VALUE"),
    ],
)
def test_a_setting_that_is_given_as_an_option_is_told_how(
    rows: Path, option: str, say: str
) -> None:
    said = dmfvi_command("fit", rows, "--model", "poisson", "--target", "falls", *option.split())
    assert (said.code, say in said.err) == (2, True)
    assert dmfvi_command("fit", rows, "--nothing").code == 2


def test_settings_that_are_told_of_exist() -> None:
    known = [(set(columns_of(kind)), set(settings_of(kind))) for kind in KINDS.values()]
    for name, value in BY_SET.items():
        assert any(name in either[value == "VALUE"] for either in known)


def test_help_names_columns_beside_the_features() -> None:
    said = dmfvi_command("fit", "-h").out
    for word in ("exposure=years", "offset=", "weight=", "trials=", "classes=low,mid,high"):
        assert word in said


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("low,mid,high", ("low", "mid", "high")),
        ("2,0,1", (2, 0, 1)),
        ("0.5,1", (0.5, 1.0)),
        ("007,7", ("007", "7")),
        ("a, b", ("a", "b")),
    ],
)
def test_a_list_needs_no_brackets(text: str, classes: tuple[object, ...]) -> None:
    made = ModelSettings.of("ordinal", target="y", classes=text).settings["classes"]
    assert made == classes
    assert [*map(type, made)] == [*map(type, classes)]
    one = ModelSettings.of("linear", target="y", formula="none", prior_precision="1,2")
    assert one.settings["prior_precision"] == (1.0, 2.0)


def test_commas_in_brackets_part_no_list_and_no_entry_is_empty() -> None:
    term = "C(sex, Treatment('f'))[T.m]"
    made = ModelSettings.of("mixed-model", target="y", groups="g", random_slopes=term)
    assert made.settings["random_slopes"] == (term,)
    both = ModelSettings.of("mixed-model", target="y", groups="g", random_slopes=f"{term},age")
    assert both.settings["random_slopes"] == (term, "age")
    with pytest.raises(ValueError, match="empty entry"):
        ModelSettings.of("ordinal", target="y", classes="low,mid,high,")


@pytest.mark.parametrize("value", ["low", 2, 0.5, []])
def test_one_label_is_no_list_of_classes(value: object) -> None:
    with pytest.raises(
        ValueError, match=f"a list of labels, as low,high or .* received {re.escape(repr(value))}"
    ):
        ModelSettings.of("ordinal", target="y", classes=value)


def test_a_regression_ends_with_the_way_to_its_table(rows: Path) -> None:
    out = rows.parent / "the model"
    words = ["--model", "ordinal", "--target", "grade", "--columns", "x", "--out", out]
    said = dmfvi_command("fit", rows, *words, "--set", "classes=low,mid,high")
    assert said.code == 0
    assert said.out.endswith(f"table of coefficients: dmfvi show '{out}'")
    more = dmfvi_command("fit", rows, *words, "--set", "classes=low,mid,high", "--json")
    assert json.loads(more.out)["converged"]
    assert dmfvi_command("predict", rows, "--model", out).code == 0
    head = (rows.parent / "rows.predicted.csv").read_text().splitlines()[0]
    ends = [f"p_{c}_{end}" for c in ("low", "mid", "high") for end in ("lower", "upper")]
    assert head.split(",") == ["prediction", "p_low", "p_mid", "p_high", *ends]


def test_a_survival_model_with_a_target_says_what_it_needs(rows: Path) -> None:
    said = dmfvi_command("fit", rows, "--model", "cox", "--target", "falls").err
    assert "a cox-regression needs --time and --event, not --target" in said
