"""Models know their columns: from frames and from files, after saving, and in every prediction."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import dmfvi
from dmfvi.deploy.config import config_of
from dmfvi.deploy.kinds import KINDS, ModelSettings
from dmfvi.readers.tables import Table
from estimator_cases import CASES

pandas = pytest.importorskip("pandas")
TABLES = sorted(kind for kind in CASES if KINDS[kind]._data_form in ("rows", "sequences"))
#: a single column has no order
SEVERAL = [kind for kind in TABLES if kind != "categorical-hmm"]
ASKED = ("predict_proba", "predict", "transform", "score_samples", "impute", "score")


def named(table: Table) -> Table:
    return Table(table.data, [f"c{i}" for i in range(table.data.shape[1])])


@pytest.mark.parametrize("kind", TABLES)
def test_models_of_the_shell_know_their_columns(kind: str, tmp_path: Path) -> None:
    case = CASES[kind]
    table = named(case.pooled)
    rows, names, _ = case.model.arguments(table)
    made = case.model.fit(table)
    again = dmfvi.load(dmfvi.save(made, tmp_path / "model.npz"))
    assert again.feature_names_in_.tolist() == names
    frame = pandas.DataFrame(rows, columns=names)
    wrong = frame[names[::-1]] if len(names) > 1 else frame.rename(columns={names[0]: "other"})
    for model in (made, again):
        for name in ASKED:
            if hasattr(model, name) and not (name == "score" and "target" in case.model.columns):
                with pytest.raises(ValueError, match=r"eature names"):
                    getattr(model, name)(wrong)


@pytest.mark.parametrize("kind", TABLES)
def test_models_fitted_to_frames_know_their_columns(kind: str) -> None:
    case = CASES[kind]
    rows, names, more = case.model.arguments(named(case.pooled))
    frame = pandas.DataFrame(rows, columns=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        made = clone(case.model.estimator()).fit(frame, **more)
    assert made.feature_names_in_.tolist() == names
    asked = next(name for name in ASKED if hasattr(made, name))
    getattr(made, asked)(frame)
    with pytest.raises(ValueError, match=r"eature names"):
        getattr(made, asked)(frame.rename(columns={names[0]: "other"}))


def test_a_node_reads_its_file_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who;x;y\np1;1,5;2\np2;2,5;-\np3;0,5;1\n")
    (tmp_path / "b.csv").write_text("y;who;x\n2;p4;1,5\n3;p5;2,5\n1;p6;0,5\n")
    text = {"decimal": ",", "missing": ["-"], "columns": ["x", "y"]}
    read = []
    for name in ("a", "b"):
        node = {"id": 0, "listen": "127.0.0.1:7447", "data": f"{name}.csv"}
        config = config_of(
            {"node": node, "data": text, "model": {"n_components": 1}}, tmp_path / "n.toml", True
        )
        read.append(config.model.read(config.data, config.reading))
    np.testing.assert_array_equal(read[0].data, [[1.5, 2], [2.5, np.nan], [0.5, 1]])
    np.testing.assert_array_equal(read[1].data, [[1.5, 2], [2.5, 3], [0.5, 1]])
    model = ModelSettings.of("bayesian-pca", n_components=1)
    assert model.fingerprint(read[0]) == model.fingerprint(read[1])


def test_lists_of_frames_are_sequences() -> None:
    rng = np.random.default_rng(0)
    frames = [
        pandas.DataFrame(rng.normal(size=(20, 2)) + n % 2, columns=["a", "b"]) for n in range(4)
    ]
    arrays = [frame.to_numpy() for frame in frames]
    for given, same in ((frames, arrays), ([frames[:2], frames[2:]], [arrays[:2], arrays[2:]])):
        one, two = (dmfvi.GaussianHMM(2, random_state=0).fit(x) for x in (given, same))
        np.testing.assert_array_equal(one.means_, two.means_)
        assert one.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"eature names"):
        dmfvi.GaussianHMM(2, random_state=0).fit([frames[0], frames[1][["b", "a"]]])
