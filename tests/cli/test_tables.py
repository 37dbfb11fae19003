"""Tables as people have them: observed cells stay as they are, columns go by name, labels keep their type."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.readers import read_table
from dmfvi.readers.tables import Reading, Selection, Table

ID = "9007199254740993"  # not a float


def lines(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    """Ids that no float can hold, a name, codes with zeros in front, numbers with gaps."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=30)
    path = tmp_path / "patients.csv"
    rows = ["code,name,a,b,c,d"]
    for n, v in enumerate(z):
        cells = [f"{v + 0.1 * rng.normal():.3f}", f"{2 * v:.2f}", f"{-v:.4f}", f"{n % 3}.0"]
        cells[n % 3] = "" if n % 5 == 0 else cells[n % 3]
        rows.append(",".join([f"{int(ID) + n}" if n else ID, f"00{n}", *cells]))
    path.write_text("\n".join(rows) + "\n")
    return path


def test_imputed_tables_keep_observed_cells_and_ids_as_text(patients: Path, tmp_path: Path) -> None:
    asked = ["--id", "code", "--drop", "name"]
    assert (
        dmfvi_command("fit", patients, *asked, "--components", 1, "--out", tmp_path / "m").code == 0
    )
    assert dmfvi.load(tmp_path / "m").feature_names_in_.tolist() == list("abcd")
    out = tmp_path / "filled.csv"
    said = dmfvi_command(
        "impute", patients, "--model", tmp_path / "m", *asked, "--out", out, "--std"
    )
    assert said.code == 0
    before, after = lines(patients), lines(out)
    assert after[0] == ["code", "a", "b", "c", "d"]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert new[0] == old[0]
        kept = [old[0], *old[2:]]
        assert all(b == a for a, b in zip(kept, new, strict=True) if a)
        assert all(np.isfinite(float(b)) for b in new[1:])
    spread = lines(tmp_path / "filled.std.csv")
    assert [row[0] for row in spread] == [row[0] for row in after]


def test_columns_that_a_model_does_not_know_are_carried_along(
    patients: Path, tmp_path: Path
) -> None:
    asked = ["--columns", "b,a,c", "--components", 1, "--out", tmp_path / "m"]
    assert dmfvi_command("fit", patients, *asked).code == 0
    assert dmfvi.load(tmp_path / "m").feature_names_in_.tolist() == list("bac")
    out = tmp_path / "filled.csv"
    said = dmfvi_command("impute", patients, "--model", tmp_path / "m", "--out", out)
    assert "columns ['code', 'name', 'd'] are no features of the model" in said.err
    before, after = lines(patients), lines(out)
    assert after[0] == before[0]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert [new[p] for p in (0, 1, 5)] == [old[p] for p in (0, 1, 5)]
        assert all(b == a for a, b in zip(old, new, strict=True) if a)


def test_intervals_are_written_and_may_be_calibrated(patients: Path, tmp_path: Path) -> None:
    asked = ["impute", patients, "--model", "bayesian-pca", "--columns", "a,b,c", "--interval"]
    widths = {}
    for calibration in ("model", "held-out"):
        out = tmp_path / f"{calibration}.csv"
        said = dmfvi_command(*asked, "--level", 0.5, "--calibration", calibration, "--out", out)
        assert said.code == 0, said.err
        assert "50% intervals" in said.out
        low, middle, high = (
            lines(out.with_suffix(f"{word}.csv"))[1:] for word in (".low", "", ".high")
        )
        gaps = [
            (i, j) for i, row in enumerate(lines(patients)[1:]) for j in (2, 3, 4) if not row[j]
        ]
        for i, j in gaps:
            assert float(low[i][j]) < float(middle[i][j]) < float(high[i][j])
        widths[calibration] = [float(high[i][j]) - float(low[i][j]) for i, j in gaps]
        assert [row[:2] for row in low] == [row[:2] for row in middle]
    assert widths["model"] != widths["held-out"]


def test_a_model_that_is_fitted_on_the_spot_copies_words_as_a_saved_one_does(
    patients: Path, tmp_path: Path
) -> None:
    """With names and without."""
    rows = [f"P{line}".replace(",00", ",ward ") for line in patients.read_text().splitlines()]
    plain = tmp_path / "plain.csv"
    patients.write_text("\n".join(rows) + "\n")
    plain.write_text("\n".join(rows[1:]) + "\n")
    for file, head in ((patients, "--header"), (plain, "--no-header")):
        out = tmp_path / "filled.csv"
        said = dmfvi_command("impute", file, head, "--model", "bayesian-pca", "--out", out)
        assert said.code == 0, said.err
        assert "hold text, they are copied unchanged" in said.err
        for old, new in zip(lines(file), lines(out), strict=True):
            assert all(b == a for a, b in zip(old, new, strict=True) if a)
            assert all(new)


def test_deviations_are_of_the_models_columns_beside_ids(patients: Path, tmp_path: Path) -> None:
    asked = ["--columns", "b,a,c", "--components", 1, "--out", tmp_path / "m"]
    assert dmfvi_command("fit", patients, *asked).code == 0
    out = tmp_path / "filled.csv"
    words = ["impute", patients, "--model", tmp_path / "m", "--out", out, "--std"]
    for ids in ([], ["name"]):
        assert dmfvi_command(*words, *(["--id", "name"] if ids else [])).code == 0
        spread = lines(out.with_suffix(".std.csv"))
        assert spread[0] == [*ids, "a", "b", "c"]
        for old, new in zip(lines(patients)[1:], spread[1:], strict=True):
            assert new[: len(ids)] == ([old[1]] if ids else [])
            assert [float(v) > 0 for v in new[len(ids) :]] == [not cell for cell in old[2:5]]


def test_files_of_an_earlier_run_are_not_taken_for_this_ones(
    patients: Path, tmp_path: Path
) -> None:
    run = ["impute", patients, "--model", "bayesian-pca", "--out", tmp_path / "f.csv"]

    def there() -> set[str]:
        return {file.name.removesuffix(".csv") for file in tmp_path.glob("f*")}

    assert dmfvi_command(*run, "--std", "--interval").code == 0
    assert dmfvi_command(*run, "--draws", 3).code == 0
    assert there() == {"f", "f.std", "f.low", "f.high", "f.1", "f.2", "f.3"}
    said = dmfvi_command(*run, "--std")
    assert "of an earlier run, now" in said.out
    assert there() == {"f", "f.std", "f.low.csv.old", "f.high.csv.old", "f.1", "f.2", "f.3"}
    dmfvi_command(*run, "--draws", 2)
    assert there() == {"f", "f.std", "f.low.csv.old", "f.high.csv.old", "f.1", "f.2", "f.3.csv.old"}


def test_draws_of_an_earlier_run_are_found_where_some_are_gone(
    patients: Path, tmp_path: Path
) -> None:
    """Other files with a number in their name are left alone."""
    for name in ("f.2.csv", "f.4.csv", "f.2024.csv", "f.03.csv", "f.5.npy", "ff.6.csv"):
        (tmp_path / name).write_text("earlier")
    run = ["impute", patients, "--model", "bayesian-pca", "--out", tmp_path / "f.csv"]
    assert dmfvi_command(*run, "--draws", 1).code == 0
    there = {file.name for file in tmp_path.glob("f*")}
    left = {"f.2024.csv", "f.03.csv", "f.5.npy", "ff.6.csv"}
    assert there == {"f.1.csv", "f.2.csv.old", "f.4.csv.old", *left}


def test_an_imputation_that_fails_leaves_those_of_earlier_runs(
    patients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no draws today")

    earlier = {"f.std.csv", "f.low.csv", "f.1.csv", "f.2.csv"}
    for name in earlier:
        (tmp_path / name).write_text("earlier")
    run = ["impute", patients, "--model", "bayesian-pca", "--out", tmp_path / "f.csv"]
    monkeypatch.setattr("dmfvi.models.pca.posterior.PcaPosterior.draws", fail)
    said = dmfvi_command(*run, "--std", "--draws", 1)
    assert said.code == 1
    assert {file.name for file in tmp_path.glob("f*")} == earlier
    assert all((tmp_path / name).read_text() == "earlier" for name in earlier)


@pytest.mark.parametrize(
    "left_out", [["--id", 1, "--drop", 2], ["--columns", "3,5,6"], ["--columns", "3,4,5,6"]]
)
@pytest.mark.parametrize("head", [True, False])
def test_numbers_of_columns_are_the_files(
    left_out: list[object], head: bool, patients: Path, tmp_path: Path
) -> None:
    """Whatever is left out before them."""
    if not head:
        patients.write_text(patients.read_text().partition("\n")[2])
    words = ["--model", "linear", "--set", "missing=drop", "--target", 4, "--out", tmp_path / "m"]
    said = dmfvi_command("fit", patients, *left_out, *words, "--json")
    assert said.code == 0, said.err
    used = json.loads(said.out)
    rows = read_table(patients, header=head).data[:, 2:]
    whole = np.isfinite(rows).all(1)
    assert (used["rows_used"], used["rows_dropped"]) == (whole.sum(), (~whole).sum())
    assert used["features"] == 3
    direct = dmfvi.BayesianLinearRegression().fit(rows[whole][:, [0, 2, 3]], rows[whole][:, 1])
    np.testing.assert_allclose(dmfvi.load(tmp_path / "m").coef_, direct.coef_, rtol=1e-6)


@pytest.mark.parametrize("columns", [("3", "4"), ("a", "b"), ("a", "4"), ("a",)])
@pytest.mark.parametrize("target", ["b", 4])
def test_a_target_may_be_among_the_columns_by_name_or_number(
    columns: tuple[str, ...], target: str | int, patients: Path
) -> None:
    reading = Reading(selection=Selection(columns))
    table = ModelSettings.of("linear", target=target).read(patients, reading)
    assert isinstance(table, Table)
    assert table.columns == ["a", "b"]


def test_a_fit_says_which_rows_and_columns_it_has_used(patients: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.csv"
    more.write_text("\n".join(patients.read_text().splitlines()[:11]))
    words = ["--columns", "a,b", "--components", 1, "--out", tmp_path / "m"]
    said = dmfvi_command("fit", patients, more, *words)
    for told in ("rows used │ 40 in 2 files", "rows dropped │ 0", "features │ 2", "cells │ 6.2%"):
        assert told in said.out
    words = ["--model", "linear", "--formula", "a ~ b + c", "--out", tmp_path / "m"]
    said = dmfvi_command("fit", patients, *words)
    for told in ("rows used │ 24", "rows dropped │ 6, cells are missing", "features │ 2"):
        assert told in said.out


@pytest.mark.parametrize(
    ("words", "features"),
    [
        (["kaplan-meier", "--columns", "time,event"], 0),
        (["cox-regression", "--set", "time=time", "--set", "event=event"], 1),
    ],
)
def test_times_and_events_are_no_features(
    words: list[object], features: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{1 + n % 9},{n % 3 // 2},{rng.normal():.3f}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["time,event,a", *rows]))
    more = ["--out", tmp_path / "m", "--json"]
    said = dmfvi_command("fit", tmp_path / "t.csv", "--model", *words, *more)
    assert said.code == 0, said.err
    assert json.loads(said.out)["features"] == features


def test_draws_differ_where_cells_are_missing_only(patients: Path, tmp_path: Path) -> None:
    asked = ["--columns", "a,b,c", "--components", 1, "--out", tmp_path / "m"]
    assert dmfvi_command("fit", patients, *asked).code == 0
    words = ["--model", tmp_path / "m", "--out", tmp_path / "f.csv", "--draws", 2]
    assert dmfvi_command("impute", patients, *words).code == 0
    first, second = lines(tmp_path / "f.1.csv"), lines(tmp_path / "f.2.csv")
    for old, a, b in zip(lines(patients)[1:], first[1:], second[1:], strict=True):
        for cell, x, y in zip(old, a, b, strict=True):
            assert (x == y) == bool(cell)


def test_a_warning_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n,\n2,5\n4,4\n3,1\n")
    said = dmfvi_command("impute", tmp_path / "t.csv", "--model", "auto")
    assert said.code == 0
    assert said.err.count("samples without any observed entry: 1") == 1


def test_ids_that_no_float_can_hold_are_spoken_of(tmp_path: Path) -> None:
    """Read as floats, neighbours are equal."""
    path = tmp_path / "t.csv"
    rows = [f"{2**53 + 1 + n},{n * n % 7},{n * n % 5}" for n in range(20)]
    path.write_text("\n".join(["patient,a,b", *rows]))
    said = dmfvi_command("fit", path, "--components", 1, "--out", tmp_path / "m")
    assert "column 'patient' looks like an id" in said.err


def test_imputed_tables_go_to_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    path, out = tmp_path / "t.csv", tmp_path / "new" / "filled.csv"
    rows = [f"{n},{n * n % 7},{n * n % 5},x,x,x,x,x,x" for n in range(20)]
    path.write_text("\n".join(["a,b,c,d,e,f,g,h,i", *rows, "3,,1,x,x,x,x,x,x"]) + "\n")
    model = tmp_path / "m"
    dmfvi_command("fit", path, "--columns", "a,b,c", "--components", 1, "--out", model)
    said = dmfvi_command("impute", path, "--model", model, "--out", out)
    assert said.code == 0, said.err
    assert "columns ['d', 'e', 'f', 'g', 'h'] and 1 more are no features" in said.err
    assert len(lines(out)) == 22


def test_a_column_that_looks_like_an_id_is_spoken_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    rows = [f"{1000 + 7 * n},{rng.normal():.3f},{rng.normal():.3f}" for n in range(20)]
    path.write_text("\n".join(["patient_id,a,b", *rows]))
    said = dmfvi_command("fit", path, "--components", 1, "--out", tmp_path / "m")
    assert "column 'patient_id' looks like an id" in said.err
    assert "--id patient_id" in said.err
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path)
    with pytest.warns(UserWarning, match="'patient_id' looks like an id"):
        dmfvi.BayesianPCA(1, random_state=0).fit(frame)
    said = dmfvi_command(
        "fit", path, "--id", "patient_id", "--components", 1, "--out", tmp_path / "m"
    )
    assert "looks like" not in said.err


@pytest.mark.parametrize("lacking", [[3], [0, 7, 8]])
def test_ids_of_which_some_are_missing_are_spoken_of(lacking: list[int], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    ids = ["" if n in lacking else str(1000 + 7 * n) for n in range(20)]
    rows = [f"{who},{n * n % 7},{n * n % 5}" for n, who in enumerate(ids)]
    path.write_text("\n".join(["patient_id,a,b", *rows]))
    said = dmfvi_command("fit", path, "--components", 1, "--out", tmp_path / "m")
    assert "column 'patient_id' looks like an id" in said.err
    pandas = pytest.importorskip("pandas")
    with pytest.warns(UserWarning, match="'patient_id' looks like an id"):
        dmfvi.BayesianPCA(1, random_state=0).fit(pandas.read_csv(path))


def outcomes(path: Path, labels: list[str], separator: str = ",") -> Path:
    rng = np.random.default_rng(1)
    rows = []
    for n in range(60):
        a, b = rng.normal(size=2)
        rows.append(separator.join([f"p{n}", f"{a:.3f}", f"{b:.3f}", labels[int(a + b > 0)]]))
    path.write_text("\n".join([separator.join(["who", "a", "b", "outcome"]), *rows]))
    return path


@pytest.mark.parametrize(
    ("labels", "kind"), [(["no", "yes"], "U"), (["0", "1"], "i"), (["1.0", "2.0"], "f")]
)
def test_classes_keep_their_type(labels: list[str], kind: str, tmp_path: Path) -> None:
    path = outcomes(tmp_path / "t.csv", labels)
    words = ["--model", "bayesian-logistic-regression", "--target", "outcome", "--id", "who"]
    assert dmfvi_command("fit", path, *words, "--out", tmp_path / "m").code == 0
    model = dmfvi.load(tmp_path / "m")
    assert model.classes_.dtype.kind == kind
    assert [str(c) for c in model.classes_] == labels
    assert dmfvi_command("predict", path, "--model", tmp_path / "m", "--id", "who").code == 0
    made = lines(tmp_path / "t.predicted.csv")
    ends = [f"p_{label}_{end}" for label in labels for end in ("lower", "upper")]
    assert made[0] == ["who", "prediction", *(f"p_{label}" for label in labels), *ends]
    assert [row[0] for row in made[1:]] == [f"p{n}" for n in range(60)]
    truth = [row[3] for row in lines(path)[1:]]
    assert np.mean([row[1] == t for row, t in zip(made[1:], truth, strict=True)]) > 0.8


def test_a_file_per_node_gives_the_pooled_model_whatever_the_order_of_columns(
    tmp_path: Path,
) -> None:
    whole = outcomes(tmp_path / "all.csv", ["no", "yes"])
    head, *rows = lines(whole)
    sites = []
    for site, part in enumerate((rows[:15], rows[15:40], rows[40:])):
        order = [0, 1, 2, 3] if site != 1 else [3, 2, 0, 1]
        path = tmp_path / f"site{site}.csv"
        text = [",".join(row[p] for p in order) for row in (head, *part)]
        path.write_text("\n".join(text))
        sites.append(path)
    words = ["--model", "bayesian-logistic-regression", "--target", "outcome", "--drop", "who"]
    assert dmfvi_command("fit", *sites, *words, "--out", tmp_path / "sites").code == 0
    assert dmfvi_command("fit", whole, *words, "--out", tmp_path / "pooled").code == 0
    network, pooled = dmfvi.load(tmp_path / "sites"), dmfvi.load(tmp_path / "pooled")
    assert network.network.n_nodes == 3
    assert pooled.network is None
    np.testing.assert_allclose(network.coef_, pooled.coef_, rtol=1e-6)
    said = dmfvi_command("show", tmp_path / "sites", "--json")
    found = json.loads(said.out)
    assert [row["feature"] for row in found["coefficients of yes"]] == ["a", "b", "intercept"]
    assert found["details"]["target"] == "outcome"
    said = dmfvi_command("show", tmp_path / "sites")
    assert "bernoulli regression" in said.out
    assert "converged" in said.out


@pytest.mark.parametrize("kind", ["a frame in another order", "a frame of other names"])
def test_saved_models_know_their_columns(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = outcomes(tmp_path / "t.csv", ["0", "1"])
    words = ["--model", "bayesian-logistic-regression", "--target", "outcome", "--id", "who"]
    dmfvi_command("fit", path, *words, "--out", tmp_path / "m")
    model = dmfvi.load(tmp_path / "m")
    frame = pandas.read_csv(path)[["a", "b"]]
    assert model.predict_proba(frame).shape == (60, 2)
    other = frame[["b", "a"]] if "order" in kind else frame.rename(columns={"a": "x"})
    for given in (other, [other, other], [frame, other]):
        with pytest.raises(ValueError, match=r"eature names|columns"):
            model.predict_proba(given)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a;b;c\n1,5;2;NA\n2,5;#N/A;7\n3,5;1;2\n", {"decimal": ","}),
        ("a\tb\tc\n1.5\t2\t\n2.5\tN/A\t7\n3.5\t1\t2\n", {}),
        ("a,b,c\n1.5,2,-\n2.5,-,7\n3.5,1,2\n", {"missing": ("-",)}),
        ("a|b|c\n1.5|2|?\n2.5|null|7\n3.5|1|2\n", {}),
        ("a,b,c\n150%,2,\n250 %,,7\n350%,1,2\n", {"percent": True}),
    ],
)
def test_text_tables_of_every_habit_are_read(
    content: str, words: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    table = read_table(path, **words)  # type: ignore[arg-type]
    assert table.columns == ["a", "b", "c"]
    expected = [[1.5, 2, np.nan], [2.5, np.nan, 7], [3.5, 1, 2]]
    np.testing.assert_allclose(table.data, expected)


@pytest.mark.parametrize("suffix", [".tsv", ".parquet", ".feather", ".xlsx"])
def test_files_of_other_programs_are_read(suffix: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl" if suffix == ".xlsx" else "pyarrow")
    frame = pandas.DataFrame(
        {"who": [f"p{n}" for n in range(12)], "a": np.arange(12) * 0.1, "b": [None, *range(11)]}
    )
    path = tmp_path / f"t{suffix}"
    if suffix == ".tsv":
        frame.to_csv(path, sep="\t", index=False)
    else:
        write = {".parquet": "to_parquet", ".feather": "to_feather", ".xlsx": "to_excel"}[suffix]
        getattr(frame, write)(path, **({"index": False} if suffix != ".feather" else {}))
    table = read_table(path, drop=["who"])
    assert table.columns == ["a", "b"]
    # spreadsheets keep 15 digits
    np.testing.assert_allclose(table.data, frame[["a", "b"]].to_numpy(), rtol=1e-14)
    said = dmfvi_command("fit", path, "--id", "who", "--components", 1, "--out", tmp_path / "m")
    assert said.code == 0


def test_decimal_commas_and_percentages_are_written_as_they_were_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    rows = []
    for n in range(20):
        v = rng.normal()
        rows.append(f"{v:.2f}".replace(".", ",") + f";{10 * v + n % 3:.1f}%".replace(".", ","))
    rows[4] = ";5%"
    rows[5] = "0,5;"
    path.write_text("\n".join(["a;b", *rows]))
    how = ["--decimal", ",", "--percent"]
    assert dmfvi_command("fit", path, *how, "--components", 1, "--out", tmp_path / "m").code == 0
    out = tmp_path / "o.csv"
    assert dmfvi_command("impute", path, *how, "--model", tmp_path / "m", "--out", out).code == 0
    made = out.read_text().splitlines()
    assert [row for n, row in enumerate(made[1:]) if n not in (4, 5)] == [
        row for n, row in enumerate(rows) if n not in (4, 5)
    ]
    again = read_table(out, decimal=",", percent=True)
    assert np.isfinite(again.data).all()
    assert made[6].endswith("%")


@pytest.mark.parametrize("form", ["rows", "chains", "topics", "factors"])
def test_predictions_of_every_kind_are_a_table(form: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    state = np.repeat([0, 1, 0, 1], 10)
    data = 4.0 * state[:, None] + rng.normal(size=(40, 2))
    if form == "topics":
        data = rng.poisson(3.0, size=(40, 2)).astype(float)
    rows = [f"s{n // 20},{a!r},{b!r}" for n, (a, b) in enumerate(data.tolist())]
    path.write_text("\n".join(["series,a,b", *rows]))
    model = {
        "rows": ["--model", "bayesian-gaussian-mixture", "--drop", "series"],
        "chains": ["--model", "gaussian-hmm", "--sequence", "series"],
        "topics": ["--model", "latent-dirichlet-allocation", "--drop", "series"],
        "factors": ["--components", 1, "--drop", "series"],
    }[form]
    more = [] if form == "factors" else ["--components", 2]
    assert dmfvi_command("fit", path, *model, *more, "--out", tmp_path / "m").code in (0, 4)
    said = dmfvi_command("predict", path, "--model", tmp_path / "m", "--id", "series")
    if form == "chains":
        said = dmfvi_command("predict", path, "--model", tmp_path / "m")
    assert said.code == 0, said.err
    made = lines(tmp_path / "t.predicted.csv")
    assert len(made) == 41
    start = 0 if form == "chains" else 1
    assert all(np.isfinite(float(v)) for row in made[1:] for v in row[start:])
    assert dmfvi_command("show", tmp_path / "m").code == 0
    shown = json.loads(dmfvi_command("show", tmp_path / "m", "--json").out)
    if form in ("rows", "chains"):  # numbered as p_0, p_1
        assert [row["component"] for row in shown["means"]] == [0, 1]
    if form == "chains":
        assert [list(row) for row in shown["transmat"]] == 2 * [["", "0", "1"]]
        assert [row[""] for row in shown["transmat"]] == [0, 1]
        assert shown["startprob"][0].keys() == {"", "0", "1"}
