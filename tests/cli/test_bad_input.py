"""Bad input over the shell: each line says what is wrong in one sentence and ends with its code, none with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_input import LINEAR, LOGISTIC, NODE, Case, check, csv, node, toml, write_files
from dmfvi.cli.exit_codes import ExitCode

BAD = "fit {d}/bad.csv --out {d}/o"
RATE = "ratings fit {d}/bad.csv --out {d}/o --no-cache"
RUN = "node --config {d}/bad.toml --insecure"
CASES = [
    # usage
    Case("fitt", "No such command 'fitt'", ExitCode.USAGE),
    Case("fit", "Missing argument 'data'", ExitCode.USAGE),
    Case("fit {d}/good.csv --nope", "No such option: --nope", ExitCode.USAGE),
    Case(
        "fit {d}/good.csv --components many", "unable to parse string as an integer", ExitCode.USAGE
    ),
    Case("fit {d}/good.csv --topology circle", "'circle' is not one of", ExitCode.USAGE),
    Case("fit {d}/good.csv --engine cloud", "'cloud' is not one of", ExitCode.USAGE),
    Case("impute {d}/good.csv", "Missing option '--model'", ExitCode.USAGE),
    Case("sfm {d}/tracks.csv --metric round", "'round' is not one of", ExitCode.USAGE),
    Case("example zoo {d}/x", "'zoo' is not one of", ExitCode.USAGE),
    Case("keys issue {d}/ca", "Missing option '--node'", ExitCode.USAGE),
    # files of tables
    Case("fit {d}/none.csv", "none.csv does not exist"),
    Case("fit {d}", "is a directory: give a file"),
    Case("fit {d}/x.doc", "unknown format '.doc', use one of", file=("x.doc", "1")),
    Case(BAD, "is empty", file=csv("")),
    Case(BAD, "is empty", file=csv("\n\n\n")),
    Case(BAD, "has a line of 2 column names and no rows below it", file=csv("a,b\n")),
    Case(BAD, "line 3: 1 cells, expected 2", file=csv("a,b\n1,2\n3\n4,5\n")),
    Case(BAD, "line 3: 3 cells, expected 2", file=csv("a,b\n1,2\n3,4,5\n4,5\n")),
    Case(BAD, "column 'b': 'red' is not a number", file=csv("a,b\n1,red\n2,blue\n3,4\n")),
    Case(BAD, "(text also in columns 'c')", file=csv("a,b,c\n1,x,3\n2,4,y\n")),
    Case(BAD, "say --decimal ,", file=csv("a;b\n1,5;2\n2,5;3\n")),
    Case(BAD, "say --percent", file=csv("a,b\n15%,2\n25%,3\n")),
    Case(BAD, "say --missing -", file=csv("a,b\n1,-\n2,3\n")),
    Case(BAD, "'1_000' is not a number", file=csv("a,b\n1_000,2\n2,3\n")),
    Case(BAD + " --decimal ,", "'1.234,5' is not a number", file=csv("a;b\n1.234,5;2\n2,5;3\n")),
    Case(BAD, "column 1 has no name", file=csv(",a,b\n0,1,2\n1,2,3\n")),
    Case(BAD, "columns ['a'] occur more than once", file=csv("a,a\n1,2\n2,1\n")),
    Case(BAD, "say whether the first line names the columns", file=csv("1.0,abc\n2,3\n")),
    Case(BAD, "column 'b' is infinite", file=csv("a,b\n1,inf\n2,3\n")),
    Case(BAD, "no value in column 'b'", file=csv("a,b\n1,\n2,\n")),
    Case(BAD, "it holds zero bytes", file=csv("a,b\n1,\0\n")),
    Case("fit {d}/latin.csv", "for example --encoding cp1252"),
    Case("fit {d}/latin.csv --encoding ascii", "is not ASCII text"),
    Case("fit {d}/good.csv --encoding rot13", "--encoding must be a text encoding"),
    Case("fit {d}/good.csv --encoding klingon", "--encoding must be a text encoding"),
    Case("fit {d}/objects.npy", "is not a readable .npy file"),
    Case("fit {d}/vector.npy", "holds an array of shape (5,)"),
    Case("fit {d}/words.npy", "values, numbers are needed"),
    Case("fit {d}/two.npz", "keep one array, or name the table 'X'"),
    Case("fit {d}/broken.npz", "is not a readable .npz table"),
    Case("fit {d}/broken.parquet", "is not a readable .parquet table"),
    Case("fit {d}/broken.xlsx", "is not a readable .xlsx table"),
    Case("fit {d}/good.csv --decimal x", "--decimal must be . or ,"),
    Case("fit {d}/good.csv --separator ab", "--separator must be one character"),
    Case("fit {d}/good.csv --decimal , --separator ,", "are both ','"),
    # columns
    Case("fit {d}/good.csv --columns z", "--columns = 'z' is none of the columns ['a'"),
    Case("fit {d}/good.csv --columns 9", "--columns = '9' is none of the columns"),
    Case("fit {d}/good.csv --columns a,a", "--columns names a column twice"),
    Case("fit {d}/good.csv --drop z", "--drop = 'z' is none of the columns"),
    Case("fit {d}/good.csv --id z", "--id = 'z' is none of the columns"),
    Case("fit {d}/good.csv --drop a,b,c,d", "all columns are left out"),
    Case("fit {d}/good.csv --columns a,b --drop a", "is in --columns, and in --drop or --id"),
    Case(f"fit {{d}}/good.csv {LINEAR} --target a --drop a", "'a'"),
    Case("fit {d}/good.npy --drop a", "have numbers, no names"),
    Case("fit {d}/plain.csv --drop a", "have no names: number it, 1 to"),
    # settings
    Case("fit {d}/good.csv --model magic", "--model must be one of"),
    Case("fit {d}/good.csv --components 9", "--components=9 is larger than n_features=4"),
    Case("fit {d}/good.csv --components 0", "--components must be a whole number of at least 1"),
    Case("fit {d}/good.csv --tol -1", "--tol must be positive, received -1"),
    Case("fit {d}/good.csv --max-iter 0", "--max-iter must be a whole number of at least 1"),
    Case("fit {d}/good.csv --nodes 0", "must be at least 1, received 0"),
    Case("fit {d}/good.csv --nodes 99", "samples cannot be split over 99 nodes"),
    Case("fit {d}/good.csv --set noise", "is no name=value"),
    Case("fit {d}/good.csv --set colour=red", "has no ['colour'], known are"),
    Case("fit {d}/good.csv --set noise=loud", 'must be "shared" or "feature" or "per_node"'),
    Case("fit {d}/good.csv --set shares=5", "--set shares of a bayesian-pca must be"),
    Case("fit {d}/good.csv --set noise=per_node", "needs nodes, received network=None"),
    Case("fit {d}/good.csv --components 2 --set n_components=2", "is given twice"),
    Case("fit {d}/good.csv --target a", "has no ['target']"),
    Case(f"fit {{d}}/good.csv {LINEAR}", "needs --target, the name or number"),
    Case(f"fit {{d}}/good.csv {LINEAR} --target z", "--target = 'z' is none of the columns"),
    Case(
        f"fit {{d}}/good.csv {LINEAR} --formula a~b+z",
        "--formula = 'a~b+z': 'z' is none of the columns ['a'",
    ),
    Case(f"fit {{d}}/gaps.csv {LINEAR} --target a", "say --set missing=drop or --set missing"),
    Case(f"fit {{d}}/labels.csv {LINEAR} --target kind", "'x' is not a number"),
    Case(f"fit {{d}}/one.csv {LOGISTIC} --target kind", "y has one class only, 'x'"),
    Case(f"fit {{d}}/half.csv {LOGISTIC} --target kind", "no value in column 'kind'"),
    Case(f"fit {{d}}/good.csv {LOGISTIC} --target a", "continuous"),
    Case("fit {d}/good.csv --model svd-factorization --nodes 2", "it runs on one machine only"),
    Case("fit {d}/good.csv {d}/good.csv", "good.csv twice: a node's rows would count twice"),
    Case("fit {d}/good.csv {d}/other.csv", "lacks columns ['d'] of"),
    Case("fit {d}/good.csv {d}/plain.csv", "give all files the same columns"),
    Case("fit {d}/good.csv {d}/again.csv --nodes 3", "a file is a node, leave it out"),
    Case("fit {d}/good.csv --resume", "--checkpoint and --resume are for --engine mpi"),
    Case("fit {d}/good.csv --out {d}/good.csv", "is a file: give a directory"),
    Case("fit {d}/good.csv --model categorical-hmm", "symbols"),
    Case("fit {d}/negative.csv --model latent-dirichlet-allocation", "counts"),
    # models in files
    Case("impute {d}/good.csv --model {d}/nowhere", "does not exist: fit a model there first"),
    Case("impute {d}/good.csv --model {d}/good.csv", "is damaged or no saved model"),
    Case("impute {d}/good.csv --model {d}/line", "does not fill tables"),
    Case("impute {d}/good.csv --model gaussian-hmm", "a GaussianHMM does not fill tables"),
    Case("impute {d}/bad.csv --model ppca", "say --decimal ,", file=csv("a;b\n1,5;2\n2,5;3\n")),
    Case("impute {d}/bad.csv --model ppca", "say --missing -", file=csv("a,b\n-,2\n-,3\n")),
    Case("impute {d}/bad.csv --model ppca", "'x' is not a number", file=csv("a,b\n1,2\nx,3\n")),
    Case(
        "impute {d}/other.csv --model {d}/model",
        "lacks columns ['d'] and has unknown columns ['z']",
    ),
    Case("impute {d}/three.npy --model {d}/model", "has 3 columns, the model has 4 features"),
    Case("impute {d}/good.csv --model {d}/model --out {d}/good.csv", "overwrite the input"),
    Case("impute {d}/t.1.csv --model {d}/model --out {d}/t.csv --draws 2", "overwrite the input"),
    Case("impute {d}/t.std.csv --model {d}/model --out {d}/t.csv --std", "overwrite the input"),
    Case("impute {d}/good.csv --model {d}/model --out {d}/x.txt", "must be a .csv or .npy file"),
    Case("impute {d}/good.csv --model {d}/model --draws -1", "--draws must be at least 0"),
    Case("impute {d}/good.csv --model {d}/model --level 2", "--level must lie in (0, 1)"),
    Case(
        "impute {d}/good.csv --model {d}/model --interval --calibration held-out",
        "fits a model to this table again and again: give auto or a kind",
    ),
    Case("impute {d}/good.csv --model auto --calibration held-out", "add --interval"),
    Case("impute {d}/good.csv --model {d}/model --level 0.5", "add --interval"),
    Case("impute {d}/good.csv --model {d}/model --drop a", "lacks columns ['a']"),
    Case("impute {d}/good.csv --model {d}/model --columns b,a,c,d", "name them in this order"),
    Case("predict {d}/good.csv --model {d}/model --level 2", "--level must lie in (0, 1)"),
    Case("predict {d}/other.csv --model {d}/line", "lacks columns ['d']"),
    Case(
        "predict {d}/empty.csv --model {d}/line",
        "row 0 (counted from 0) has no value in column 'd'",
    ),
    Case("predict {d}/good.csv --model {d}/rates", "use dmfvi ratings predict"),
    Case("predict {d}/good.csv --model {d}/line --out {d}/x.npy", "must be a .csv file"),
    Case("show {d}/nowhere", "does not exist"),
    Case("show {d}/good.csv", "is damaged or no saved model"),
    Case("models magic", "MODEL must be one of"),
    # tracks
    Case("sfm {d}/none.csv", "does not exist"),
    Case("sfm {d}/good.csv --cameras 0", "--cameras must be at least 1"),
    Case(
        "sfm {d}/bad.csv",
        "looks like one observation a line",
        file=csv(
            "f_id,p_id,u,v\n"
            + "\n".join(f"{f},{p},{f + p}.5,{f * p}.5" for f in range(4) for p in range(5))
        ),
    ),
    Case("sfm {d}/bad.csv", "lacks columns ['y']", file=csv("frame,point,x\n0,0,1.5\n1,0,2.5\n")),
    Case(
        "sfm {d}/bad.csv",
        "point 0 occurs more than once in frame 0",
        file=csv("frame,point,x,y\n0,0,1,2\n0,0,1,2\n"),
    ),
    Case("sfm {d}/bad.csv", "frame is -1", file=csv("frame,point,x,y\n-1,0,1,2\n0,0,1,2\n")),
    Case(
        "sfm {d}/bad.csv",
        "'p1' is not a number; frames and points must be numbered, name the columns of frame",
        file=csv("frame,point,x,y\n0,p1,1,2\n1,p1,1,2\n"),
    ),
    Case("sfm {d}/three.npy", "tracks need x and y of each frame", code=1),
    Case("sfm {d}/tracks.csv --motion 2", "motion"),
    Case("sfm {d}/tracks.csv --columns frame,point", "needs the columns of frame, point, x and y"),
    Case("sfm {d}/x.mat", "is not a readable MATLAB 5 file", file=("x.mat", "no")),
    Case("sfm {d}/tracks.csv --cameras 99", "99"),
    # ratings
    Case("ratings fit {d}/none.csv", "does not exist"),
    Case(RATE, "is empty or begins with an empty line", file=csv("")),
    Case(
        RATE,
        "none of the columns ['who', 'what', 'stars!'] is a user's",
        file=csv("who,what,stars!\na,b,5\n"),
    ),
    Case(
        RATE + " --columns who,what", "--columns needs three names", file=csv("who,what,r\na,b,5\n")
    ),
    Case(RATE + " --columns who,what,x", "not ['x']", file=csv("who,what,r\na,b,5\n")),
    Case(RATE, "is no number", file=csv("user,item,rating\na,b,good\n")),
    Case(RATE, "too few fields", file=csv("user,item,rating\na,b,5\na\n")),
    Case("ratings fit {d}/ratings.csv --components 0", "--components must be 1 to 32"),
    Case("ratings fit {d}/ratings.csv --components 99", "--components must be 1 to 32"),
    Case("ratings fit {d}/ratings.csv --holdout 1.5", "--holdout must lie in [0, 1)"),
    Case("ratings fit {d}/ratings.csv --sweeps 0", "--sweeps must be at least 1"),
    Case("ratings fit {d}/ratings.csv --tol 0", "--tol must be positive"),
    Case("ratings fit {d}/ratings.csv --low 1", "--low and --high go together"),
    Case("ratings fit {d}/ratings.csv --low 1 --high 2 --out {d}/o", "is outside the scale 1..2"),
    Case("ratings fit {d}/ratings.csv --top-n 5", "--top-n needs --holdout or --probe"),
    Case("ratings fit {d}/ratings.csv --predictions p.csv", "--predictions needs --holdout"),
    Case("ratings fit {d}/two.npz", "is not a sparse matrix"),
    Case("ratings fit {d}/ratings.csv --nodes 0", "--nodes must be at least 1"),
    Case(
        "ratings predict {d}/ratings.csv --model {d}/model", "here a RatingFactorization is needed"
    ),
    Case(
        "ratings predict {d}/ratings.csv --model {d}/rates --level 0", "--level must lie in (0, 1)"
    ),
    Case("ratings recommend --model {d}/rates", "give one of them"),
    Case("ratings recommend --model {d}/rates --user 1 --n 0", "--n must be at least 1"),
    Case("ratings recommend --model {d}/rates --users all", "--users and --out go together"),
    Case("ratings recommend --model {d}/rates --users {d}/no --out {d}/x.csv", "or the word all"),
    # nodes
    Case("node --config {d}/none.toml", "does not exist"),
    Case(RUN, "is not a TOML file", file=toml("[node")),
    Case(RUN, "[node] needs id", file=toml("[node]\n")),
    Case(RUN, "the file has unknown ['nodes']", file=node("[nodes]\n")),
    Case(RUN, "must be int, received 'x'", file=toml(NODE.replace("= 0", "= 'x'"))),
    Case(RUN, "needs host:port", file=toml(NODE.replace("127.0.0.1:7447", "here"))),
    Case(RUN, "[peers] names node 0 itself", file=node("[peers]\n0 = '127.0.0.1:7000'\n")),
    Case(RUN, "kind in [model] must be one of", file=node("[model]\nkind = 'x'\n")),
    Case(RUN, "[data] has unknown ['colour']", file=node("[data]\ncolour = 1\n")),
    Case(RUN, "decimal must be . or ,", file=node("[data]\ndecimal = 'x'\n")),
    Case(RUN, "must be a list of names", file=node("[data]\ndrop = [1.5]\n")),
    Case(RUN, "drop = 'z' is none of the columns", file=node("[data]\ndrop = ['z']\n")),
    Case(
        RUN,
        'leave columns that are not numeric out (drop = ["kind"] in [data])',
        file=toml(NODE.replace("good.csv", "labels.csv")),
    ),
    Case(
        RUN,
        'for decimal commas say decimal = "," in [data]; if - marks a missing cell say missing = ["-"] in [data]',
        file=toml(NODE.replace("good.csv", "commas.csv")),
    ),
    Case(RUN, "header = true or false in [data]", file=toml(NODE.replace("good", "odd"))),
    Case("node --config {d}/bad.toml", "has no [tls] table", file=node()),
    Case("launch {d}/bad.toml --insecure", "needs a list", file=toml("x = 1")),
    Case(
        "launch {d}/bad.toml --insecure",
        "twice: every node has a file",
        file=toml("nodes = ['n0.toml', 'n0.toml']"),
    ),
    Case(
        "launch {d}/bad.toml --insecure",
        "have the same id 0",
        file=toml("nodes = ['n0.toml', 'n0b.toml']"),
    ),
    Case(
        "launch {d}/bad.toml --insecure",
        "have the same listen",
        file=toml("nodes = ['n0.toml', 'n1.toml']"),
    ),
    Case(
        "launch {d}/bad.toml --insecure",
        "have the same data",
        file=toml("nodes = ['n0.toml', 'n2.toml']"),
    ),
    Case(
        "launch {d}/bad.toml --insecure",
        "it listens at 127.0.0.1:7449",
        file=toml("nodes = ['n3.toml', 'n4.toml']"),
    ),
    Case("keys issue {d}/nowhere --node 0 --host h", "ca"),
    Case("keys issue {d}/nowhere --node 0 --host h --days 0", "--days must be at least 1"),
    # the result of infer
    Case("predict {d}/good.csv --model {d}/result.npz", "holds the result of infer for a Poisson"),
    Case("impute {d}/good.csv --model {d}/result.npz", "not an estimator: use dmfvi show"),
    Case("report {d}/result.npz", "holds the result of infer for a PoissonGamma, not an estimator"),
    Case(
        "ratings recommend --model {d}/result.npz --user 1", "here a RatingFactorization is needed"
    ),
    # experiments
    Case("reproduce nothing", "choose one of"),
    Case("reproduce online --jobs 0", "--jobs must be at least 1"),
    Case("reproduce hopkins --data {d}/none", "is not a directory"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files and models."""
    d = tmp_path_factory.mktemp("bad")
    write_files(d)
    return d


@pytest.mark.parametrize("case", CASES, ids=[f"{c.words[:40]}-{c.says[:30]}" for c in CASES])
def test_bad_input_is_one_sentence(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    check(case, folder)


def test_there_are_many_of_them() -> None:
    assert len(CASES) >= 100
