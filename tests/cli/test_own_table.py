"""A newcomer's own table: ids and a ward in words, columns of very different units, cells that are missing."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmfvi
import sessions
from cli_run import dmfvi_command
from dmfvi.progress import told_of_fits

GAPS = {(3, "age"), (8, "creatinine"), (15, "platelets"), (21, "ward"), (40, "income")}
NUMBERS = ("age", "creatinine", "platelets", "income")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three groups of patients, in the user's own folder."""
    rng = np.random.default_rng(3)
    rows = []
    for n in range(90):
        group = n % 3
        row = {
            "patient": f"P-{n:03d}",
            "ward": ("north", "south", "day clinic")[rng.integers(3)],
            "age": f"{50 + 10 * group + 5 * rng.normal():.0f}",
            "creatinine": f"{0.8 + 0.3 * group + 0.1 * rng.normal():.2f}",
            "platelets": f"{250_000 - 40_000 * group + 20_000 * rng.normal():.0f}",
            "income": f"{30_000 + 5_000 * rng.normal():.0f}",
        }
        rows.append({k: "NA" if (n, k) in GAPS else v for k, v in row.items()})
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "patients.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path / "patients.csv"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_three_commands_give_a_filled_table(table: Path) -> None:
    """The first as the shell runs it, in a process of its own: the others know what it has written."""
    line = (
        "fit patients.csv --id patient --drop ward --model bayesian-gaussian-mixture --components 3"
    )
    ended = sessions.run([sys.executable, "-m", "dmfvi", *shlex.split(line)])
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    shown = dmfvi_command("show", "dmfvi-model")
    assert shown.code == 0, shown.err
    assert all(name in shown.out for name in NUMBERS)
    imputed = dmfvi_command(*shlex.split("impute patients.csv --model dmfvi-model --std"))
    assert imputed.code == 0, imputed.err
    assert f"{len(GAPS) - 1} of 360 entries filled" in imputed.out
    assert "['patient', 'ward'] are no features of the model, they are copied" in imputed.err
    before, after = read(table), read(table.with_name("patients.imputed.csv"))
    spread = read(table.with_name("patients.imputed.std.csv"))
    scales = {
        name: np.std([float(row[name]) for row in before if row[name] != "NA"]) for name in NUMBERS
    }
    for n, (old, new, std) in enumerate(zip(before, after, spread, strict=True)):
        for name, cell in old.items():
            if name in NUMBERS and cell == "NA":
                assert (n, name) in GAPS
                assert 0 < float(std[name]) < 1.5 * scales[name]  # in the column's own units
                assert abs(float(new[name])) > 0
            else:
                assert new[name] == cell


def test_a_page_about_the_model(table: Path) -> None:
    assert dmfvi_command("fit", table, "--id", "patient", "--drop", "ward").code == 0
    assert dmfvi_command("report", "dmfvi-model").code == 0
    page = Path("dmfvi-model/report.html").read_text()
    assert all(name in page for name in NUMBERS)


def test_three_commands_of_the_readme_give_a_report(table: Path) -> None:
    """Without any option about columns: text is left out, the note and the results say so, and files of results keep it."""
    said = dmfvi_command("fit", table, "--out", "model")
    assert said.code == 0, said.err
    assert f"{table}: columns 'patient', 'ward' hold text, they are left out" in said.err
    assert "columns left out │ patient, ward (text)" in said.out
    assert dmfvi_command("report", "model").code == 0
    page = Path("model/report.html").read_text()
    assert all(f"location {name}" in page for name in NUMBERS)
    assert dmfvi_command("impute", table, "--model", "model").code == 0
    assert [row["ward"] for row in read(table.with_name("patients.imputed.csv"))] == [
        row["ward"] for row in read(table)
    ]
    assert dmfvi.load("model").feature_names_in_.tolist() == list(NUMBERS)
    told = json.loads(dmfvi_command("fit", table, "--json", "--out", "model").out)
    assert told["columns_left_out"] == ["patient", "ward"]
    chosen = dmfvi_command("fit", table, "--columns", "age,income", "--json", "--out", "model")
    assert "columns_left_out" not in json.loads(chosen.out)


def test_only_columns_without_a_number_are_left_out(table: Path) -> None:
    """One word in a column of numbers, or a number in one of words, is an error as before; so is a chosen column of words."""
    whole = table.read_text()
    for old, new in (("P-004", "4"), (",30", ",about 30")):
        table.write_text(whole.replace(old, new, 1))
        said = dmfvi_command("fit", table, "--out", "m")
        assert said.code == 1
        assert "is not a number" in said.err
        assert "left out" not in said.err
    table.write_text(whole)
    said = dmfvi_command("fit", table, "--columns", "ward,age", "--out", "m")
    assert said.code == 1
    assert "column 'ward'" in said.err


def test_text_is_left_out_of_all_files_or_of_none(table: Path) -> None:
    """A site may have no value in a column of words; numbers there are a mistake that is reported."""
    head, *lines = table.read_text().splitlines()
    cells = [line.split(",") for line in lines]
    for number, ward in enumerate(("", "7")):
        other = [",".join([c[0], ward, *c[2:]]) for c in cells]
        Path(f"site{number}.csv").write_text("\n".join([head, *other]))
    said = dmfvi_command("fit", table, "site0.csv", "--out", "m")
    assert said.code == 0, said.err
    assert "columns 'patient', 'ward' hold text, they are left out" in said.err
    said = dmfvi_command("fit", table, "site1.csv", "--out", "m")
    assert said.code == 1
    assert "column 'patient'" in said.err


def test_the_refusal_of_words_names_options_that_work(table: Path) -> None:
    """Words may be predictors of a regression, so they are not left out by themselves."""
    table.write_text(table.read_text().replace("NA", "0"))
    asked = ["--model", "linear", "--target", "creatinine"]
    refused = dmfvi_command("fit", table, *asked)
    assert refused.code == 1
    advice = re.search(r"leave columns that are not numeric out \((.*?);", refused.err)
    assert advice is not None
    assert advice[1] == "--id patient --drop ward"
    assert dmfvi_command("fit", table, *asked, *shlex.split(advice[1])).code == 0


def test_units_that_one_noise_cannot_serve_are_said(table: Path) -> None:
    asked = ["--id", "patient", "--drop", "ward", "--out", "m"]
    said = dmfvi_command("fit", table, *asked, "--set", "noise=shared")
    assert "column 'platelets' has a standard deviation of" in said.err
    assert "column 'creatinine' of" in said.err
    mixture = dmfvi_command("fit", table, *asked, "--model", "bayesian-gaussian-mixture")
    alike = dmfvi_command("fit", table, *asked, "--columns", "platelets,income")
    for quiet in (mixture, alike, dmfvi_command("fit", table, *asked)):
        assert quiet.code == 0
        assert "standard deviation" not in quiet.err


def test_a_failed_run_leaves_no_model_of_an_earlier_one(table: Path) -> None:
    asked = ["--id", "patient", "--drop", "ward", "--out", "m"]
    assert dmfvi_command("fit", table, *asked).code == 0
    before = Path("m/model.npz").read_bytes()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with told_of_fits(interrupt):
        failed = dmfvi_command("fit", table, *asked)
    assert failed.code == 130
    assert "m/model.npz is not written, the earlier one is m/model.npz.old" in failed.err
    assert not Path("m/model.npz").exists()
    assert Path("m/model.npz.old").read_bytes() == before
    shown = dmfvi_command("show", "m")
    assert shown.code == 1
    assert dmfvi_command("fit", table, *asked).code == 0
    assert not Path("m/model.npz.old").exists()  # replaced by what has succeeded


@pytest.mark.parametrize(
    "mistake",
    [
        ["--components", 99],
        ["--tol", -1],
        ["--columns", "aeg"],
        ["--set", "noise=per_node"],
        ["--nodes", 10_000],
        ["--model", "logistic", "--target", "age"],
        ["--quiet", "--verbose"],
        ["--nope"],
    ],
    ids=str,
)
def test_a_mistake_leaves_the_model_of_an_earlier_run(table: Path, mistake: list[Any]) -> None:
    """Only a run that begins to fit supersedes it."""
    asked = ["--id", "patient", "--drop", "ward", "--out", "m"]
    Path("m").mkdir()
    for name in ("model.npz", "model.npz.old"):
        Path("m", name).write_text(name)
    said = dmfvi_command("fit", table, *asked, *mistake)
    assert said.code in (1, 2)
    assert "earlier" not in said.err
    for name in ("model.npz", "model.npz.old"):
        assert Path("m", name).read_text() == name


def test_ratings_and_tracks_that_cannot_be_read_leave_it_too(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("frame,point,x\n0,0,1.5\n")
    (tmp_path / "model.npz").write_text("earlier")
    for words in (["sfm"], ["ratings", "fit"]):
        assert dmfvi_command(*words, tmp_path / "bad.csv", "--out", tmp_path).code == 1
        assert (tmp_path / "model.npz").read_text() == "earlier"


def test_the_summary_names_class_and_prior(table: Path) -> None:
    words = ["--formula", "ward2 ~ age", "--model", "logistic", "--out", "r"]
    lines = table.read_text().splitlines()
    made = [lines[0] + ",ward2"]
    made += [f"{line},{'old' if n % 3 else 'young'}" for n, line in enumerate(lines[1:])]
    table.write_text("\n".join(made))
    assert dmfvi_command("fit", table, *words).code == 0
    said = dmfvi_command("show", "r").out
    assert "probability of ward2 = young, " in said
    assert "prior precision 1 of standardised columns (the default)" in said


def test_classes_may_be_words() -> None:
    said = dmfvi_command("models", "bayesian-logistic-regression").out
    assert "labels, as low,high" in said


def test_rows_with_gaps_are_predicted_empty_and_counted(table: Path) -> None:
    """A regression leaves them out of the fit; the same file can be predicted from, also where the fit had no gaps."""
    fit = ["--formula", "creatinine ~ age + C(ward)", "--model", "linear", "--out", "r"]
    assert dmfvi_command("fit", table, *fit).code == 0
    lines = table.read_text().splitlines()
    Path("whole.csv").write_text("\n".join(line for line in lines if "NA" not in line))
    plain = ["--model", "linear", "--target", "creatinine", "--columns", "age", "--out", "w"]
    assert dmfvi_command("fit", "whole.csv", *plain).code == 0
    said = dmfvi_command("predict", table, "--model", "w", "--out", "w.csv")
    assert "1 row lacks values, its prediction is left empty (--set missing=impute" in said.err
    assert Path("w.csv").read_text().splitlines()[4] == ",,,"
    said = dmfvi_command("predict", table, "--model", "r", "--id", "patient")
    assert said.code == 0, said.err
    assert "2 rows lack values, their predictions are left empty" in said.err
    made = read(table.with_name("patients.predicted.csv"))
    assert [row["patient"] for row in made] == [row["patient"] for row in read(table)]
    empty = {n for n, row in enumerate(made) if row["prediction"] == ""}
    assert empty == {3, 21}
    assert all(np.isfinite(float(row["std"])) for n, row in enumerate(made) if n not in empty)
