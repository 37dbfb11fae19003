"""What every estimator of ESTIMATORS must do; a new one is picked up by itself and needs one case."""

from __future__ import annotations

import inspect
import re
import tomllib
from typing import Any

import numpy as np
import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmfvi import Network
from dmfvi.deploy.data import READERS
from dmfvi.deploy.kinds import KINDS, NETWORK_KINDS, ModelSettings, columns_of
from dmfvi.deploy.settings import NAMES_OF_TERMS, settings_of
from dmfvi.models import ESTIMATORS
from estimator_cases import CASES, toml_of

#: checks of scikit-learn that need no data
WITHOUT_DATA = [
    "check_no_attributes_set_in_init",
    "check_get_params_invariance",
    "check_set_params",
    "check_parameters_default_constructible",
    "check_estimator_cloneable",
    "check_estimator_repr",
]
each = pytest.mark.parametrize("kind", sorted(KINDS))


def default(kind: str) -> ModelSettings:
    """Nothing given but the columns that are needed."""
    needed = [name for name, needed in columns_of(KINDS[kind]).items() if needed]
    return ModelSettings.of(kind, **dict.fromkeys(needed, 1))


# -- kinds ----------------------------------------------------------------------------------


def test_every_estimator_has_a_case() -> None:
    lacking = sorted(set(KINDS) - set(CASES))
    lines = [f'OfEstimator("{kind}", rows of three nodes, settings)' for kind in lacking]
    assert not lacking, (
        f"add to estimators=(...) of the model's case in tests/model_cases.py: {lines}"
    )


def test_kinds_are_the_names_of_the_classes() -> None:
    assert len(KINDS) == len(ESTIMATORS)
    for kind, estimator in KINDS.items():
        assert kind.replace("-", "") == estimator.__name__.lower()
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind)


@each
def test_it_runs_on_a_network_or_says_that_it_does_not(kind: str) -> None:
    assert kind in NETWORK_KINDS or "on one machine" in KINDS[kind].__doc__


@each
def test_it_says_what_its_data_are(kind: str) -> None:
    assert KINDS[kind]._data_form in READERS
    rows, _, further = CASES[kind].model.arguments(CASES[kind].data[0])
    inspect.signature(KINDS[kind].fit).bind(None, rows, **further)


# -- settings -------------------------------------------------------------------------------


@each
def test_default_settings_construct_the_estimator(kind: str) -> None:
    made, plain = default(kind).estimator().get_params(), KINDS[kind]().get_params()
    if "random_state" in plain:
        assert made.pop("random_state") == 0
        del plain["random_state"]
    assert made == {**plain, **getattr(KINDS[kind], "_table_defaults", {})}


@each
def test_settings_come_back_from_toml(kind: str) -> None:
    for model in (CASES[kind].model, default(kind)):
        content = tomllib.loads(toml_of(model))
        assert ModelSettings.of(content.pop("kind"), **content) == model


@each
def test_a_setting_of_another_type_is_refused(kind: str) -> None:
    columns = dict(default(kind).columns)
    for name, setting in settings_of(KINDS[kind]).items():
        for wrong in ({"a": 1}, "any word", [[]], True):
            if wrong is True and setting.hint is bool:
                continue
            if wrong == "any word" and setting.hint == NAMES_OF_TERMS:
                continue  # a list of one
            with pytest.raises(ValueError, match=f"{name} of a {kind} .*received") as caught:
                ModelSettings.of(kind, **columns, **{name: wrong})
            assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("bayesian-pca", {"tol": 1}, 1.0),
        ("structure-from-motion", {"metric": "none"}, None),
        ("rating-factorization", {"rating_scale": [1, 5]}, (1.0, 5.0)),
        ("gaussian-hmm", {"covariance_prior": [[1, 0], [0, 2.5]]}, ((1.0, 0.0), (0.0, 2.5))),
        ("bayesian-gaussian-mixture", {"mean_prior": [0, 1]}, (0.0, 1.0)),
    ],
)
def test_values_are_kept_as_the_hints_have_them(
    kind: str, given: dict[str, Any], kept: Any
) -> None:
    (name,) = given
    value = ModelSettings.of(kind, **given).settings[name]
    assert (type(value), value) == (type(kept), kept)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("bayesian-pca", {"n_components": 2.0}, "must be a whole number, received 2.0"),
        (
            "bayesian-pca",
            {"noise": "loud"},
            '"shared" or "feature" or "per_node", received \'loud\'',
        ),
        ("bayesian-pca", {"prior": 3}, "is a PcaPrior, which only Python can make, received 3"),
        ("bayesian-pca", {"tol": 10**400}, "must be a number"),
        ("rating-factorization", {"rating_scale": [1]}, "a list of 2 numbers"),
        ("bayesian-linear-regression", {}, "needs target, the name or number of a column"),
        ("gaussian-mixture", {}, "kind must be one of .*'bayesian-gaussian-mixture'"),
    ],
)
def test_errors_say_what_is_allowed(kind: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSettings.of(kind, **given)


# -- scikit-learn and help() ----------------------------------------------------------------


def takes_any_numbers(kind: str) -> bool:
    """Rows of a table, and not only of whole numbers as counts and symbols are."""
    if kind not in CASES or KINDS[kind]._data_form not in ("rows", "sequences"):
        return False
    rows, _, _ = CASES[kind].model.arguments(CASES[kind].pooled)
    seen = rows[np.isfinite(rows)]
    return bool((seen != np.round(seen)).any())


#: what is checked on two nodes in every run, the others in the slow tier: how rows are split over nodes is the base class's
OFTEN_ON_TWO_NODES = ("bayesian-linear-regression", "bayesian-gaussian-mixture")


def estimators_to_check(on_two_nodes: bool = False, often: bool = True) -> list[Any]:
    """Pooled, or on two nodes where rows can be split."""
    made = []
    for kind, estimator in KINDS.items():
        if not takes_any_numbers(kind):
            continue
        known = settings_of(estimator)
        given = {"n_components": 2, "random_state": 0}
        given = {name: value for name, value in given.items() if name in known}
        if kind in ("ppca", "mixture-of-pca"):  # slow at the end
            given["tol"] = 1e-3
        if (
            kind == "mixed-model"
        ):  # moments of the posterior take as long as all other estimators together
            given["approximation"] = "laplace"
        can_be_split = kind in NETWORK_KINDS and estimator._data_form == "rows"
        if not on_two_nodes:
            made.append(estimator(**given))
        elif can_be_split and (kind in OFTEN_ON_TWO_NODES) == often:
            made.append(estimator(**given, network=Network.ring(2)))
    return made


def not_for_sequences(estimator: Any) -> dict[str, str]:
    """Rows of a sequence depend on each other: these two checks reorder and cut them."""
    if estimator._data_form != "sequences":
        return {}
    reason = "the rows are one sequence, their order matters"
    return {
        "check_methods_sample_order_invariance": reason,
        "check_methods_subset_invariance": reason,
    }


def not_for_all(estimator: Any) -> dict[str, str]:
    """Checks that do not apply, with the reason."""
    if type(estimator).__name__ == "GeneralizedLinearModel":
        name = "check_sample_weight_equivalence_on_dense_data"
        return {name: "twice as many columns as rows and no noise: singular to three digits"}
    if type(estimator).__name__ == "CoxRegression":
        name = "check_sample_weight_equivalence_on_dense_data"
        return {name: "Efron's ties: a row that comes twice is a tie, a row of weight two is none"}
    if type(estimator).__name__ == "PPCA" and estimator.network is not None:
        name = "check_sample_weight_equivalence_on_dense_data"
        return {name: "D-PPCA stops where nodes with other rows would not: equal up to tol only"}
    return not_for_sequences(estimator)


@parametrize_with_checks(estimators_to_check(), expected_failed_checks=not_for_all)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@parametrize_with_checks(estimators_to_check(on_two_nodes=True), expected_failed_checks=not_for_all)
def test_scikit_learn_checks_on_two_nodes(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    estimators_to_check(on_two_nodes=True, often=False), expected_failed_checks=not_for_all
)
def test_scikit_learn_checks_of_the_others_on_two_nodes(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [kind for kind in sorted(KINDS) if not takes_any_numbers(kind)])
@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_scikit_learn_checks_without_data(kind: str, name: str) -> None:
    """Random floats are no counts, symbols, tracks or ratings: the checks that feed them do not apply."""
    getattr(estimator_checks, name)(KINDS[kind].__name__, KINDS[kind]())


def documented(text: str) -> list[str]:
    """The names in the numpydoc section "Parameters"."""
    section = re.search(r"\n *Parameters\n *-+\n(.*?)\n *\n", inspect.cleandoc(text) + "\n\n", re.S)
    assert section, "no section Parameters"
    heads = [line for line in section[1].splitlines() if line[:1].strip()]
    return [name.strip() for head in heads for name in head.partition(" : ")[0].split(",")]


@each
def test_help_documents_every_parameter(kind: str) -> None:
    parameters = inspect.signature(KINDS[kind]).parameters
    names = documented(KINDS[kind].__doc__)
    positional = [name for name, each in parameters.items() if each.kind is not each.KEYWORD_ONLY]
    assert names[: len(positional)] == positional
    assert sorted(names) == sorted(parameters)


def test_a_parameter_without_documentation_would_be_found() -> None:
    assert documented(
        "Title.\n\nParameters\n----------\na, b : int\n    Text.\nc : x\n\nMore\n"
    ) == [*"abc"]
