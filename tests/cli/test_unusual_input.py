"""Unusual input over the shell: names, sizes, encodings and options that few people give, each with its sentence."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bad_input import LINEAR, LOGISTIC, NODE, Case, check, csv, node, toml, write_files
from cli_run import dmfvi_command
from dmfvi.cli.exit_codes import ExitCode

BAD = "fit {d}/bad.csv --out {d}/o"
GOOD = "fit {d}/good.csv --out {d}/o"
RATE = "ratings fit {d}/bad.csv --out {d}/o --no-cache"
RUN = "node --config {d}/bad.toml --insecure"
TRACKS = "frame,point,x,y\n" + "".join(
    f"{f},{p},{f * p % 5}.{p},{f + p}.{f}\n" for f in range(4) for p in range(6)
)
CASES = [
    # options that name nothing, as an unset variable of a script does
    Case(GOOD + " --columns ''", "--columns '' names no column: leave it out"),
    Case(GOOD + " --drop ' , '", "--drop ' , ' names no column"),
    Case(GOOD + " --id ''", "--id '' names no column"),
    Case("fit ''", "is a directory: give a file"),
    Case(GOOD + " --set =3", "a bayesian-pca has no ['']"),
    Case(GOOD + " --set tol=", "--tol of a bayesian-pca must be a number, received ''"),
    Case(f"{GOOD} {LINEAR} --formula ''", "needs --target"),
    # numbers
    Case(GOOD + " --seed -1", "greater than or equal to 0", ExitCode.USAGE),
    Case(GOOD + " --seed 4294967296", "less than or equal to 4294967295", ExitCode.USAGE),
    Case("demo --seed -1", "greater than or equal to 0", ExitCode.USAGE),
    Case("impute {d}/good.csv --model auto --seed -1", "equal to 0", ExitCode.USAGE),
    Case("sfm {d}/tracks.csv --seed -1", "equal to 0", ExitCode.USAGE),
    Case(RATE + " --seed -1", "equal to 0", ExitCode.USAGE),
    Case("example hospital {d}/e --seed -1", "equal to 0", ExitCode.USAGE),
    Case(GOOD + " --set random_state=-1", "--seed must be a whole number from 0 to 4294967295"),
    Case(GOOD + " --set random_state=x", "--seed of a bayesian-pca must be a whole number"),
    Case(GOOD + " --tol inf", "--tol must be finite, received inf"),
    Case(GOOD + " --tol nan", "--tol must be positive, received nan"),
    Case(RATE + " --tol inf", "--tol must be positive and finite, received inf"),
    Case(GOOD + " --set n_components=2.0", "--components of a bayesian-pca must be a whole number"),
    Case(GOOD + " --set n_components=true", "must be a whole number, received True"),
    Case(GOOD + " --nodes -3", "must be at least 1, received -3"),
    Case(GOOD + " --engine mpi --every 0", "--every must be at least 1, received 0"),
    Case("warmup --components 99", "--components must be 1 to 32, received 99"),
    Case("warmup --components 0", "--components must be 1 to 32, received 0"),
    Case("sfm {d}/tracks.csv --min-frames 0", "--min-frames must be at least 1, received 0"),
    Case("sfm {d}/tracks.csv --min-frames 99", "is seen in 99 frames; the longest track has"),
    Case("predict {d}/good.csv --model {d}/model --level nan", "--level must lie in (0, 1)"),
    Case("ratings fit {d}/ratings.csv --holdout nan", "--holdout must lie in [0, 1), received nan"),
    Case("ratings fit {d}/ratings.csv --holdout 0.99999 --out {d}/o", "every rating is held out"),
    # sizes
    Case(
        BAD, "column 'a' has values of size 1e+308, above 1e+70", file=csv("a,b\n1e308,2\n-3,3\n")
    ),
    Case(BAD, "column 'a' has values of size 1e-200, below", file=csv("a,b\n1e-200,2\n0,3\n")),
    Case(BAD, "column 'a' is infinite", file=csv("a,b\n1e309,2\n1,3\n")),
    Case(
        f"{BAD} {LINEAR} --target b",
        "column 'b' has values of size 1e+200",
        file=csv("a,b\n1,1e200\n2,3\n3,4\n"),
    ),
    Case(
        "predict {d}/bad.csv --model {d}/model",
        "column 'a' has values of size 1e+300",
        file=csv("a,b,c,d\n1e300,2,3,4\n"),
    ),
    Case(
        "impute {d}/bad.csv --model {d}/model",
        "column 'b' is infinite",
        file=csv("a,b,c,d\n1,inf,3,4\n"),
    ),
    Case(RATE, "is above 3.4e+38: give ratings", file=csv("user,item,rating\na,b,1e50\nb,b,1\n")),
    Case(RATE, "is not a finite number", file=csv("user,item,rating\na,b,inf\nb,b,1\n")),
    Case(
        "sfm {d}/bad.csv", "column 'x' is infinite", file=csv(TRACKS.replace("0,0,0.0", "0,0,inf"))
    ),
    Case(
        "sfm {d}/bad.csv",
        "frame is 0.5, expected a whole number",
        file=csv(TRACKS.replace("0,0,0.0", "0.5,0,0.0")),
    ),
    # small tables
    Case(BAD, "1 sample(s)", file=csv("a,b\n1,2\n")),
    Case(BAD, "--components=2 is larger than n_features=1", file=csv("a\n1\n2\n3\n")),
    Case(f"{BAD} {LINEAR} --target a", "no column beside target", file=csv("a\n1\n2\n3\n")),
    Case(
        "impute {d}/bad.csv --model auto",
        "none is left to learn from",
        file=csv("a,b\nx,y\nz,\n,y\n"),
    ),
    Case(
        "ratings fit {d}/bad.csv --nodes 9 --out {d}/o",
        "1 users",
        file=csv("user,item,rating\na,b,1\n"),
    ),
    # what is no table
    Case("fit {d}/folder.csv", "is a directory: give a file"),
    Case("sfm {d}/folder.csv", "is a directory: give a file"),
    Case("node --config {d}/folder.csv --insecure", "is a directory: give a file"),
    Case("fit /dev/null", "unknown format ''"),
    Case("fit -", "- does not exist"),
    Case("fit {d}/x.csv.gz", "unknown format '.gz'", file=("x.csv.gz", b"\x1f\x8b")),
    Case("fit {d}/x.json", "unknown format '.json'", file=("x.json", "{}")),
    Case(BAD, "say whether the first line names", file=csv('{"a": [1,2,3], "b": [3,4,5]}\n')),
    Case(BAD, "'<p>' is not a number", file=csv("<html>404</html>\n<p>\n")),
    Case(BAD, "is not UTF-8 text", file=("bad.csv", bytes(range(256)) * 20)),
    Case(BAD, "--encoding utf-16", file=("bad.csv", "a,b\n1,2\n".encode("utf-16"))),
    Case(
        "node --config {d}/bad.toml --insecure",
        "is not a TOML file",
        file=("bad.toml", bytes(range(256))),
    ),
    Case(RATE, "has no tab, comma, semicolon", file=("bad.csv", bytes(range(9)) * 20)),
    # cells and columns
    Case(BAD, "line 2: 2 cells, expected 1", file=csv("# a comment\na,b\n1,2\n")),
    Case(BAD, "line 2: 3 cells, expected 2", file=csv("a,b\n1,2,\n3,4,\n")),
    Case(BAD, "column 3 has no name", file=csv("a,b,\n1,2,\n3,4,\n")),
    Case(BAD, "line 4: 1 cells, expected 2", file=csv('a,b\n"1,2\n3,4\n5,1\n')),
    Case(BAD, "'$1.50' is not a number", file=csv("a,b\n$1.50,1\n$3,2\n")),
    Case(BAD, "'TRUE' is not a number", file=csv("a,b\nTRUE,1\nFALSE,2\n")),
    Case(BAD, "'0x10' is not a number", file=csv("a,b\n0x10,1\n0x11,2\n")),
    Case(BAD, "'1 2' is not a number", file=csv("a b\n1 2\n3 4\n")),
    Case(
        BAD + " --columns a",
        "columns ['a'] occur more than once",
        file=csv("a,a,b\n1,2,3\n4,5,6\n"),
    ),
    Case(GOOD + " --columns 1-3", "--columns = '1-3' is none of the columns"),
    Case(GOOD + " --columns -1", "--columns = '-1' is none of the columns"),
    Case(GOOD + " --separator ''", "--separator must be one character"),
    Case(f"{GOOD} {LINEAR} --target 0", "--target = 0 is not in 1..4"),
    Case(f"{GOOD} {LINEAR} --target true", "--target = 'true' is none of the columns"),
    # the same rows twice, by another name
    Case("fit {d}/good.csv {d}/./good.csv", "twice: a node's rows would count twice"),
    Case("fit {d}/good.csv {d}/link.csv", "twice: a node's rows would count twice"),
    # formulas and targets
    Case(f"{GOOD} {LINEAR} --formula 'a ~'", "has no column beside the intercept"),
    Case(f"{GOOD} {LINEAR} --formula 'a b'", "must be one as y ~ a + b"),
    Case(f"{GOOD} {LINEAR} --formula 'a ~ b +'", "cannot be read"),
    Case(f"{GOOD} {LINEAR} --formula 'log(a*0-1) ~ b'", "no row has a target: log(a*0-1) ~ b"),
    Case(f"{GOOD} {LINEAR} --target a --formula 'a ~ b'", "leave one out"),
    Case(GOOD + " --formula 'a ~ b'", "a bayesian-pca has no ['formula']"),
    Case(f"{GOOD} {LINEAR} --target a --set prior_precision=inf", "positive and finite"),
    Case(
        "fit {d}/labels.csv --model bayesian-poisson-regression --target kind", "'x' is not a num"
    ),
    Case("fit {d}/good.csv --model bayesian-poisson-regression --target a", "are counts"),
    Case(f"impute {{d}}/good.csv {LOGISTIC}", "does not fill tables"),
    # saved models
    Case("show {d}/half", "is damaged or no saved model"),
    Case("predict {d}/good.csv --model {d}/half", "is damaged or no saved model"),
    Case("report {d}/half", "is damaged or no saved model"),
    Case("show {d}/two.npz", "is no saved model, it holds"),
    Case("report {d}/model --out {d}/x.txt", "must be a .html or .htm file"),
    # where results go
    Case("predict {d}/good.csv --model {d}/model --out {d}", "must be a .csv file"),
    Case("predict {d}/good.csv --model {d}/model --out {d}/good.csv", "would overwrite the input"),
    Case("report {d}/model --out {d}/good.csv/r.html", "is a file, give a directory"),
    Case("example hospital {d}/good.csv", "is a file: give a directory"),
    Case("demo --out {d}/good.csv", "is a file: give a directory"),
    # options that exclude each other
    Case(GOOD + " --quiet --verbose", "exclude each other"),
    Case(GOOD + " --set tol=1e-3 --tol 1e-3", "--set tol=1e-3 is given twice"),
    Case(
        "ratings fit {d}/ratings.csv --probe {d}/ratings.csv --holdout 0.1 --out {d}/o",
        "--holdout and --probe both say",
    ),
    Case("ratings recommend --model {d}/rates --user 1 --users all", "give one of them"),
    # nodes
    Case(RUN, "a port from 1 to 65535", file=toml(NODE.replace("7447", "99999"))),
    Case(RUN, "id in [node] must lie between 0 and", file=toml(NODE.replace("= 0", "= -1"))),
    Case(RUN, "id in [node] must be int, received True", file=toml(NODE.replace("= 0", "= true"))),
    Case(RUN, "wait_for in [node] must lie between 1 and", file=node("wait_for = 0\n")),
    Case(RUN, "wait_seconds in [node] must lie between", file=node("wait_seconds = nan\n")),
    Case(RUN, "random_state must be a whole number", file=node("[model]\nrandom_state = -1\n")),
    Case(RUN, "tol of a bayesian-pca must be a number", file=node("[model]\ntol = 'x'\n")),
    Case(RUN, "node must be a table [node], received 3", file=toml("node = 3\n")),
    Case(RUN, "at which node 0 itself listens", file=node("[peers]\n1 = '127.0.0.1:7447'\n")),
    Case(
        RUN,
        "gives 127.0.0.1:7000 to two nodes",
        file=node("[peers]\n1 = '127.0.0.1:7000'\n2 = '127.0.0.1:7000'\n"),
    ),
    Case("launch {d}/bad.toml --insecure", "needs a list", file=toml("nodes = []")),
    Case(
        "launch {d}/bad.toml --insecure",
        "nope.toml does not exist",
        file=toml("nodes = ['nope.toml']"),
    ),
    Case("keys issue {d}/ca --node 0 --host 'not a host!'", "needs host names or addresses"),
    Case("keys issue {d}/ca --node 0 --host 1.2.3.999", "needs host names or addresses"),
    Case("keys issue {d}/ca --node -1 --host h", "must be a whole number from 0 to 4294967295"),
    Case("keys issue {d}/ca --node 0 --host h --days 99999", "ask for fewer --days"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files and models, a link, a folder with the name of a table, half a model and an authority."""
    d = tmp_path_factory.mktemp("unusual")
    write_files(d)
    os.symlink("good.csv", d / "link.csv")
    (d / "folder.csv").mkdir()
    (d / "half").mkdir()
    whole = (d / "model" / "model.npz").read_bytes()
    (d / "half" / "model.npz").write_bytes(whole[: len(whole) // 2])
    if dmfvi_command("keys", "init", d / "ca").code:
        pytest.skip("the cryptography package is not installed")
    return d


@pytest.mark.parametrize("case", CASES, ids=[f"{c.words[:40]}-{c.says[:30]}" for c in CASES])
def test_unusual_input_is_one_sentence(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    check(case, folder)


@pytest.mark.parametrize(
    "name", ["true", "2020-01-01", "1e3", "inf", "2020", "1", "002", "[a]", "größe"]
)
def test_a_column_may_have_any_name(name: str, tmp_path: Path) -> None:
    """A name is not read as a truth value, a date or another column's number."""
    import dmfvi

    rows = [f"{n % 7}.5,{3 * (n % 5)},{2 * (n % 7) + 1.0}" for n in range(20)]
    (tmp_path / "t.csv").write_text("\n".join([f"x,z,{name}", *rows]) + "\n")
    words = [*LINEAR.split(), "--target", name, "--header", "--quiet", "--out", tmp_path / "m"]
    said = dmfvi_command("fit", tmp_path / "t.csv", *words)
    assert said.code == 0, said.err
    fitted = dmfvi.load(tmp_path / "m")
    assert list(fitted.feature_names_in_) == ["x", "z"]
    np.testing.assert_allclose(fitted.coef_, [2.0, 0.0], atol=0.02)


def test_labels_with_a_zero_first_stay_as_they_are(tmp_path: Path) -> None:
    rows = [f"{n * 0.5 + n % 3},{['007', '07'][n % 2]}" for n in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["a,k", *rows]) + "\n")
    fit = ["fit", tmp_path / "t.csv", *LOGISTIC.split(), "--target", "k", "--out", tmp_path / "m"]
    assert dmfvi_command(*fit, "--quiet").code == 0
    out = tmp_path / "p.csv"
    assert (
        dmfvi_command("predict", tmp_path / "t.csv", "--model", tmp_path / "m", "--out", out).code
        == 0
    )
    head, *lines = out.read_text().splitlines()
    assert head == "prediction,p_007,p_07,p_007_lower,p_007_upper,p_07_lower,p_07_upper"
    assert {line.split(",")[0] for line in lines} <= {"007", "07"}


@pytest.mark.parametrize(
    "command", [["fit"], ["impute", "--model", "auto"], ["impute", "--model", "ppca"]], ids=" ".join
)
def test_a_small_table_with_an_id_is_warned_of(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,b\n011,1,\n008,2,3\n017,,4\n010,4,5\n012,3,3\n")
    said = dmfvi_command(
        *command, tmp_path / "t.csv", "--out", tmp_path / ("m" if command == ["fit"] else "o.csv")
    )
    assert "column 'id' looks like an id" in said.err
