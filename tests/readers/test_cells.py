"""Cells as people write them: odd line ends, blank lines, long labels, percentages, separators in and out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli_run import dmfvi_command
from dmfvi.readers import read_table


def file_of(folder: Path, text: str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("odd", ["\u2028", "\x0b", "\x0c", "\x85", "\x1c"])
def test_only_line_ends_end_a_line(odd: str, tmp_path: Path) -> None:
    file = file_of(tmp_path, f"name,x\r\na{odd}b,1\r\nc,2\r\n")
    np.testing.assert_array_equal(read_table(file, drop=["name"]).data, [[1], [2]])


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "cp1252", "latin-1", "utf-16"])
def test_files_of_other_encodings(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes("Größe;b\n1;2\n3;4\n".encode(encoding))
    table = read_table(file, encoding=encoding)
    assert list(table.columns or []) == ["Größe", "b"]
    np.testing.assert_array_equal(table.data, [[1, 2], [3, 4]])


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    file = file_of(tmp_path, "\n  \na,b\n\n1,2\n   \n3,\n\t\n\n")
    np.testing.assert_array_equal(read_table(file).data, [[1, 2], [3, np.nan]])


def test_a_quoted_empty_cell_is_a_row(tmp_path: Path) -> None:
    file = file_of(tmp_path, 'a\n1\n""\n3\n')
    np.testing.assert_array_equal(read_table(file).data, [[1], [np.nan], [3]])


@pytest.mark.parametrize(
    "names", ["na,k", "k,NA", "k,2020", "2019,k,2020", "null,none,k", "k,nan,?"]
)
def test_a_word_above_numbers_makes_a_header(names: str, tmp_path: Path) -> None:
    width = names.count(",") + 1
    rows = "\n".join(",".join([cell] * width) for cell in ("", "1", "3"))
    found = read_table(file_of(tmp_path, f"{names}\n{rows}\n"))
    assert found.columns == names.split(",")
    np.testing.assert_array_equal(found.data[1:], np.outer([1, 3], np.ones(width)))


@pytest.mark.parametrize(
    "first",
    [
        "site,NA",
        "1,-",
        "1.5,k",
        "site,2",
        "<5,12",
        "12 %,3",
        "$5,5",
        "12:30,5",
        "1O,3",
        "n.a.,5",
        "0x1,5",
        "k,3",
        "yes,2020",
    ],
)
def test_a_first_line_that_may_be_data_must_be_declared(first: str, tmp_path: Path) -> None:
    below = "site,2" if "site" in first else "1,2"
    with pytest.raises(ValueError, match="say whether the first line names the columns"):
        read_table(file_of(tmp_path, f"{first}\n{below}\n"))


def test_a_first_line_of_different_words_for_missing_cells_is_spoken_of(tmp_path: Path) -> None:
    file = file_of(tmp_path, "na,none\n1,2\n")
    with pytest.warns(UserWarning, match="is taken for data"):
        assert read_table(file).columns is None
    assert read_table(file, header=True).columns == ["na", "none"]


@pytest.mark.parametrize("base", [2**53, 2**63, 10**30])
def test_long_labels_are_kept_apart(base: int, tmp_path: Path) -> None:
    file = file_of(tmp_path, f"x,y\n1,{base}\n2,{base + 1}\n")
    labels = read_table(file, labels=["y"]).labels[1]
    assert [str(label) for label in labels] == [str(base), str(base + 1)]


def test_percentages_beside_plain_numbers_are_refused(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a,b\n12 %,1\nNA,2\n12,3\n")
    with pytest.raises(ValueError, match=r"line 4, column 'a': '12' has no percent sign, '12 %'"):
        read_table(file, percent=True)
    fine = file_of(tmp_path, "a,b\n12 %,1\nNA,2\n0,3\n 5%,4\n")
    np.testing.assert_allclose(read_table(fine, percent=True).data[:, 0], [0.12, np.nan, 0, 0.05])


@pytest.mark.parametrize("more", [[], ["--columns", "x"]], ids=["all", "chosen"])
@pytest.mark.parametrize("kind", ["bayesian-logistic-regression", "bayesian-linear-regression"])
def test_a_wrong_target_is_blamed_on_target(kind: str, more: list[str], tmp_path: Path) -> None:
    file = file_of(tmp_path, "x,outcome\n1,0\n2,1\n3,1\n")
    said = dmfvi_command(
        "fit", file, "--model", kind, "--target", "outcom", *more, "--out", tmp_path / "m"
    )
    assert said.code == 1
    assert "--target = 'outcom' is none of the columns ['x', 'outcome']" in said.err


def test_predictions_are_written_as_their_input(tmp_path: Path) -> None:
    lines = [f"p{i};{i / 10:.1f};{i / 5 + (i % 3) / 7:.3f}".replace(".", ",") for i in range(20)]
    file = file_of(tmp_path, "id;x;y\n" + "\n".join(lines))
    form = ["--decimal", ",", "--id", "id"]
    model = tmp_path / "m"
    fitted = dmfvi_command(
        "fit",
        file,
        "--model",
        "bayesian-linear-regression",
        "--target",
        "y",
        *form,
        "--out",
        model,
    )
    assert fitted.code == 0, fitted.err
    assert dmfvi_command("predict", file, "--model", model, *form).code == 0
    written = tmp_path / "rows.predicted.csv"
    assert written.read_text().startswith("id;prediction;std;low;high")
    again = read_table(written, decimal=",", drop=["id"])
    assert again.data.shape == (20, 4)
    assert np.abs(again.data[:, 0] - np.arange(20) / 5).max() < 0.5


@pytest.mark.parametrize(
    ("options", "advised", "not_advised"),
    [
        ((), ["--drop ward", "--decimal ,", "--missing -"], ["--drop age", "--drop bmi"]),
        (("--decimal", ","), ["--drop ward", "--missing -"], ["--decimal", "--drop bmi"]),
        (("--drop", "ward"), ["--decimal ,", "--missing -"], ["leave columns"]),
    ],
)
def test_columns_that_an_option_would_read_are_not_to_be_dropped(
    options: tuple[str, ...], advised: list[str], not_advised: list[str], tmp_path: Path
) -> None:
    """A text column before numbers with decimal commas, some of which are marked as missing."""
    rows = ["north;61,5;20,1", "north;-;23,5", "south;44,0;"]
    file = file_of(tmp_path, "\n".join(["ward;age;bmi", *rows, ""]))
    said = dmfvi_command("fit", file, "--out", tmp_path / "model", *options)
    assert said.code == 1
    for words in advised:
        assert words in said.err
    for words in not_advised:
        assert words not in said.err
