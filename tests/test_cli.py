"""The command line, run in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmfvi
from dmfvi.cli import main
from dmfvi.datasets import make_cube, make_low_rank, mask_at_random
from dmfvi.deploy.kinds import KINDS, NETWORK_KINDS
from dmfvi.network import Network
from dmfvi.readers import Table, read_table
from dmfvi.storage import details
from estimator_cases import CASES, toml_of, write


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["dmfvi", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    truth = make_low_rank(90, 6, 2, noise=0.2).data
    holes = mask_at_random(truth, 0.2)
    path = tmp_path / "table.csv"
    lines = ["a,b,c,d,e,f"] + [
        ",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in holes
    ]
    path.write_text("\n".join(lines))
    return path, holes, truth


def test_fit_then_impute(
    table: tuple[Path, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, holes, truth = table
    model = tmp_path / "model"
    code = run(
        monkeypatch,
        "fit",
        str(path),
        "--components",
        "2",
        "--nodes",
        "6",
        "--topology",
        "grid",
        "--out",
        str(model),
    )
    assert code == 0
    assert "converged" in capsys.readouterr().out
    assert [path.name for path in model.iterdir()] == ["model.npz"]
    estimator = dmfvi.load(model)
    assert estimator.feature_names_in_.tolist() == list("abcdef")
    assert estimator.network.n_nodes == 6
    assert np.sqrt(np.mean((estimator.impute(holes) - truth)[np.isnan(holes)] ** 2)) < 0.5
    filled = tmp_path / "filled.csv"
    assert (
        run(
            monkeypatch,
            "impute",
            str(path),
            "--model",
            str(model / "model.npz"),
            "--out",
            str(filled),
            "--std",
        )
        == 0
    )
    result = read_table(filled)
    assert result.columns == list("abcdef")
    seen = np.isfinite(holes)
    np.testing.assert_array_equal(result.data[seen], holes[seen])
    assert np.sqrt(np.mean((result.data - truth)[~seen] ** 2)) < 0.5
    assert (read_table(filled.with_suffix(".std.csv")).data[~seen] > 0.1).all()


def test_what_is_imputed_has_the_columns_of_the_file(
    table: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, holes, _ = table
    model, other, filled = tmp_path / "m", tmp_path / "other.csv", tmp_path / "filled.csv"
    assert run(monkeypatch, "fit", str(path), "--nodes", "1", "--out", str(model)) == 0
    backwards = holes[:, ::-1]
    np.savetxt(other, backwards, delimiter=",", header="f,e,d,c,b,a", comments="")
    asked = ["impute", str(other), "--model", str(model), "--out", str(filled), "--std"]
    assert run(monkeypatch, *asked) == 0
    result = read_table(filled)
    assert result.columns == list("fedcba")
    seen = np.isfinite(backwards)
    np.testing.assert_allclose(result.data[seen], backwards[seen])
    spread = read_table(filled.with_suffix(".std.csv"))
    assert spread.columns == result.columns
    np.testing.assert_array_equal(spread.data > 0, ~seen)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_fitted(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case, out = CASES[kind], tmp_path / "model"
    whole = case.pooled
    file = write(whole.data if isinstance(whole, Table) else whole, tmp_path, "data")
    columns = [f"--{name}={number}" for name, number in case.model.columns.items()]
    settings = dict(line.split(" = ") for line in toml_of(case.model).splitlines()[1:])
    given = [
        f"--set={k}={v.strip(chr(34))}" for k, v in settings.items() if k in case.model.settings
    ]
    nodes = ["--nodes", "3"] if kind in NETWORK_KINDS else []
    words = ["fit", str(file), "--model", kind, *columns, *given, *nodes]
    assert run(monkeypatch, *words, "--out", str(out)) == 0
    said = capsys.readouterr().out
    for word in ("network", "converged", "saved", "ring of 3" if nodes else "pooled"):
        assert word in said
    assert ("lower bound" in said) == (kind in NETWORK_KINDS)
    network = Network.ring(3) if nodes else None
    fitted = dmfvi.load(out)
    assert type(fitted) is KINDS[kind]
    local = case.model.fit(whole, network)
    assert fitted.posterior_.distance(local.posterior_) < 1e-12
    assert details(out)["kind"] == kind


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "magic"], "--model must be one of ['bayesian-gaussian-mixture',"),
        (["--model", "svd-factorization", "--nodes", "2"], "must be 1, it runs on one machine"),
        (["--model", "structure-from-motion", "--components", "3"], "has no ['n_components']"),
        (["--model", "bayesian-linear-regression"], "needs --target, the name or number"),
        (["--model", "bayesian-linear-regression", "--target", "z"], "none of the columns ['a'"),
        (["--target", "a"], "bayesian-pca has no ['target']"),
        (["--set", "noise=loud"], 'must be "shared" or "feature" or "per_node", received \'loud\''),
        (["--set", "noise"], "is no name=value"),
        (["--components", "2", "--set", "n_components=3"], "is given twice"),
        (["--nodes", "0"], "must be at least 1, received 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    words: list[str],
    message: str,
    table: tuple[Path, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "model"
    assert run(monkeypatch, "fit", str(table[0]), *words, "--out", str(out)) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_short_forms_are_settings(
    table: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ["--components=3", "--covariance=diag", "--tol=1e-4", "--seed=2", "--max-iter=900"]
    assert fit_small(table[0], tmp_path / "model", monkeypatch, *short) == 0
    found = dmfvi.load(tmp_path / "model").get_params()
    assert (found["n_components"], found["covariance_type"], found["tol"]) == (3, "diag", 1e-4)
    assert (found["random_state"], found["max_iter"]) == (2, 900)


def test_columns_are_chosen_by_name(
    table: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full.csv"
    np.savetxt(full, table[2], delimiter=",", header="a,b,c,d,e,f", comments="")
    words = ["--model", "bayesian-linear-regression", "--target", "c"]
    assert fit_small(full, tmp_path / "model", monkeypatch, *words) == 0
    assert dmfvi.load(tmp_path / "model").feature_names_in_.tolist() == list("abdef")
    assert details(tmp_path / "model")["target"] == "c"


def test_models_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "models") == 0
    said = capsys.readouterr().out
    assert all(kind in said for kind in KINDS)
    assert run(monkeypatch, "models", "gaussian-hmm") == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("sequence", "covariance_type", '"diag"', "random_state"))
    assert "latent" not in said
    assert run(monkeypatch, "models", "magic") == 1
    capsys.readouterr()
    assert run(monkeypatch, "fit", "--help") == 0
    assert ", ".join(KINDS) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_every_format_is_read(suffix: str, tmp_path: Path) -> None:
    data = mask_at_random(make_low_rank(5, 3, 1).data, 0.3)
    path = tmp_path / f"table{suffix}"
    if suffix == ".npy":
        np.save(path, data)
    elif suffix == ".npz":
        np.savez(path, X=data)
    else:
        np.savetxt(path, data, delimiter=",")
    np.testing.assert_allclose(read_table(path).data, data)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n3,red\n", "line 3, column 'b': 'red' is not a number"),
        ("1,2\n3\n", "line 2: 1 cells, expected 2"),
        ("", "is empty"),
        ("a,b\n", "no rows below it"),
    ],
)
def test_bad_tables_are_refused_and_nothing_is_written(
    content: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert run(monkeypatch, "fit", str(path), "--out", str(tmp_path / "model")) == 1
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "model").exists()


def test_other_problems_end_in_one_line(
    tmp_path: Path,
    table: tuple[Path, np.ndarray, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "fit", str(tmp_path / "none.csv")) == 1
    assert "does not exist" in capsys.readouterr().err
    assert run(monkeypatch, "fit", str(table[0]), "--components", "9") == 1
    assert "--components=9" in capsys.readouterr().err
    (tmp_path / "x.txt").write_text("1")
    assert run(monkeypatch, "fit", str(tmp_path / "x.txt")) == 1
    assert "unknown format" in capsys.readouterr().err
    assert run(monkeypatch, "impute", str(table[0]), "--model", str(tmp_path)) == 1
    assert "fit a model there first" in capsys.readouterr().err


def fit_small(table: Path, model: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    return run(monkeypatch, "fit", str(table), "--nodes", "2", "--out", str(model), *more)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "a;b\n1;2\n2;1,5\n",
            "line 3, column 'b': '1,5' is not a number; for decimal commas say --decimal ,",
        ),
        (
            "id;b\nK1;2,5\nK2;1,5\n",
            "name them in --formula of a regression; for decimal commas say --decimal ,",
        ),
        ("1.0,abc\n2,3\n", "line 1: 'abc' is not a number, other cells are"),
        (",a,b\n0,1,2\n1,2,3\n", "column 1 has no name"),
        ("a,a\n1,2\n2,1\n", "columns ['a'] occur more than once"),
        ("speed [m/s],b\n1,2\nx,3\n", "column 'speed [m/s]': 'x' is not a number"),
        ("[/red],b\n1,2\nx,3\n", "column '[/red]'"),
        ("a,b\n1,inf\n2,3\n", "sample 1, column 'b' is infinite"),
        ("a,b\n1,\n2,\n", "no value in column 'b'"),
    ],
)
def test_messages_name_the_place(
    content: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert fit_small(path, tmp_path / "model", monkeypatch) == 1
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("first", ["0,1,2", "2001,2002,2003"])
def test_a_first_line_that_counts_up_is_spoken_of(first: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\n0.5,0.1,2.0\n0.7,0.1,2.0\n")
    with pytest.warns(UserWarning, match="is taken for data"):
        assert len(read_table(path).data) == 3
    assert len(read_table(path, header=True).data) == 2
    assert len(read_table(path, header=False).data) == 3


def test_a_header_of_numbers_can_be_declared(tmp_path: Path) -> None:
    path = tmp_path / "years.csv"
    path.write_text("2000,2001\n1,2\n3,4\n")
    assert read_table(path).data.shape == (3, 2)
    assert read_table(path, header=True).columns == ["2000", "2001"]


def test_columns_are_matched_by_name(
    table: tuple[Path, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, holes, _ = table
    model = tmp_path / "model"
    assert fit_small(path, model, monkeypatch) == 0
    lines = [line.split(",") for line in path.read_text().splitlines()]
    turned = tmp_path / "turned.csv"
    turned.write_text("\n".join(",".join(reversed(line)) for line in lines))
    assert (
        run(
            monkeypatch,
            "impute",
            str(turned),
            "--model",
            str(model),
            "--out",
            str(tmp_path / "o.npy"),
        )
        == 0
    )
    filled = np.load(tmp_path / "o.npy")[:, ::-1]  # in the file's own order
    np.testing.assert_array_equal(filled[np.isfinite(holes)], holes[np.isfinite(holes)])
    turned.write_text(path.read_text().replace("a,b", "z,b", 1))
    capsys.readouterr()
    assert run(monkeypatch, "impute", str(turned), "--model", str(model)) == 1
    assert "lacks columns ['a'] and has unknown columns ['z']" in " ".join(
        capsys.readouterr().err.split()
    )


def test_the_input_is_not_overwritten(
    table: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = table[0], tmp_path / "model"
    before = path.read_text()
    assert fit_small(path, model, monkeypatch) == 0
    for out in (path, tmp_path, tmp_path / "x.txt"):
        assert run(monkeypatch, "impute", str(path), "--model", str(model), "--out", str(out)) == 1
    assert path.read_text() == before


def test_an_unfinished_fit_ends_with_its_own_status(
    table: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit_small(table[0], tmp_path / "model", monkeypatch, "--max-iter", "3") == 4
    assert not dmfvi.load(tmp_path / "model").converged_


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.eye(50))
    whole = (tmp_path / "t.npz").read_bytes()
    (tmp_path / "t.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"not a readable \.npz table"):
        read_table(tmp_path / "t.npz")
    np.save(tmp_path / "t.npy", np.eye(3))
    with pytest.raises(ValueError, match="damaged or no saved model"):
        dmfvi.load(tmp_path / "t.npy")


def test_a_truncated_model_is_refused(
    table: tuple[Path, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tmp_path / "model"
    run(monkeypatch, "fit", str(table[0]), "--nodes", "2", "--out", str(model))
    file = model / "model.npz"
    file.write_bytes(file.read_bytes()[:-5])
    capsys.readouterr()
    assert run(monkeypatch, "impute", str(table[0]), "--model", str(model)) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "is damaged or no saved model" in said
    assert "fit the model again with this version" in said


def test_a_model_of_another_kind_cannot_fill_a_table(
    table: tuple[Path, np.ndarray, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = dmfvi.BayesianLinearRegression().fit(table[2][:, 1:], table[2][:, 0])
    file = dmfvi.save(line, tmp_path / "line.npz")
    assert run(monkeypatch, "impute", str(table[0]), "--model", str(file)) == 1
    assert "line.npz: a BayesianLinearRegression does not fill" in capsys.readouterr().err


def test_objects_in_npy_files_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"not a readable \.npy"):
        read_table(path)


def test_demo_writes_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "demo", "--out", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "distance to pooled" in out
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_sfm_writes_structure_table_and_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "cube.npy", np.concatenate(make_cube(n_frames=12).hidden))
    out = tmp_path / "out"
    assert run(monkeypatch, "sfm", str(tmp_path / "cube.npy"), "--out", str(out)) == 0
    assert "metric" in capsys.readouterr().out
    rows = np.loadtxt(out / "structure.csv", delimiter=",", skiprows=1)
    assert rows.shape == (8, 10)
    np.testing.assert_array_equal(dmfvi.load(out).structure_, rows[:, 1:4])
    assert (out / "structure.ply").exists()
    assert (out / "structure.png").exists()


def test_sfm_names_the_file_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = np.concatenate(make_cube(n_frames=12).cameras)
    tracks[4:, 2] = np.nan
    tracks[:2, 2] = np.nan
    np.save(tmp_path / "cube.npy", tracks)
    arguments = ["sfm", str(tmp_path / "cube.npy"), "--out", str(tmp_path / "out")]
    assert run(monkeypatch, *arguments) == 1
    raw = capsys.readouterr().err
    assert "cube.npy" in "".join(raw.split())  # a long path may be broken anywhere
    said = " ".join(raw.split())
    assert "points seen in fewer than 2 frames: 2 (1)" in said
    assert "--min-frames 2" in said
    assert not (tmp_path / "out").exists()
    assert run(monkeypatch, *arguments, "--min-frames", "2") == 0


def test_reproduce_prints_writes_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "online", "--out", str(tmp_path), "--jobs", "1"]
    assert run(monkeypatch, *arguments) == 0
    assert "online D-BPCA" in capsys.readouterr().out
    assert (tmp_path / "results.json").exists()
    assert run(monkeypatch, *arguments) == 0
    assert "3 of them from an earlier run" in " ".join(capsys.readouterr().out.split())


def test_reproduce_refuses_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "reproduce", "nothing", "--out", str(tmp_path)) == 1
    assert "choose one of" in capsys.readouterr().err
    assert run(monkeypatch, "reproduce", "online", "--data", str(tmp_path / "none")) == 1
    assert "is not a directory" in " ".join(capsys.readouterr().err.split())
