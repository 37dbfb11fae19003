"""Ratings: RMSE, coverage and CPU seconds of ours and of peers, same split, same run, rank 12.

    python benchmarks/ratings.py [--sets ml-100k,ml-1m,1m,10m] [--peers ours,myfm-vi,...]

ml-100k (folds u1-u5) and ml-1m (random 90/10) are read from $DMFVI_DATA/ratings or ../shared/data/ratings where
they are; 1m and 10m are generated. Every system trains in a process of its own; a peer that is not
installed is skipped, and the line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

RANK = 12
#: nanoseconds to add one packed row (91 + 13 single-precision numbers) to a sum in cache, one core
ROW_NANOSECONDS = 17.0
Triples = tuple[np.ndarray, np.ndarray, np.ndarray]


# -- the systems: each takes train and test, gives predictions and training's CPU seconds ------------


def ours(train: Triples, test: Triples, **settings: object) -> dict[str, float]:
    from dmfvi import RatingFactorization

    def fit(part: Triples, sweeps: int) -> tuple[RatingFactorization, float]:
        begin = time.process_time()
        model = RatingFactorization(RANK, max_iter=sweeps, random_state=0, **settings).fit(part)
        return model, time.process_time() - begin

    few = tuple(column[:20_000] for column in train)
    fit(few, 1)  # compiled code is loaded
    fit(train, 1)
    _, once = fit(train, 1)
    model, seconds = fit(train, model_sweeps())
    score = model.evaluate(*test)
    sweep = (seconds - once) / (model_sweeps() - 1)
    return {
        "rmse": score.rmse,
        "coverage": score.coverage,
        "cpu": seconds,
        "sweep": sweep,
        "to_limit": sweep / (2 * len(train[0]) * ROW_NANOSECONDS * 1e-9),
    }


def model_sweeps() -> int:
    from dmfvi import RatingFactorization

    return int(RatingFactorization().max_iter)


def ours_plain(train: Triples, test: Triples) -> dict[str, float]:
    """The peers' model: one noise level, prior means that know nothing of choice."""
    return ours(train, test, noise="shared", n_choice_features=0)


def one_hot(part: Triples, n_users: int, n_items: int) -> sp.csr_matrix:
    n = len(part[0])
    columns = np.column_stack([part[0], n_users + part[1]]).ravel()
    return sp.csr_matrix(
        (np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, n_users + n_items)
    )


def myfm(train: Triples, test: Triples, kind: str, iterations: int) -> dict[str, float]:
    import myfm as peer

    n_users, n_items = sizes(train, test)
    fm = getattr(peer, kind)(rank=RANK, random_seed=0)
    x, y = one_hot(train, n_users, n_items), one_hot(test, n_users, n_items)
    begin = time.process_time()
    fm.fit(x, train[2].astype(float), n_iter=iterations, group_shapes=[n_users, n_items])
    seconds = time.process_time() - begin
    return scored(fm.predict(y), test, seconds, seconds / iterations)


def smurff(train: Triples, test: Triples, burn: int, samples: int) -> dict[str, float]:
    import smurff as peer

    shape = sizes(train, test)
    mean = train[2].mean()
    x = sp.coo_matrix(((train[2] - mean).astype(float), train[:2]), shape=shape)
    y = sp.coo_matrix(((test[2] - mean).astype(float), test[:2]), shape=shape)
    session = peer.TrainSession(
        priors=["normal", "normal"],
        num_latent=RANK,
        burnin=burn,
        nsamples=samples,
        verbose=0,
        seed=1,
    )
    session.addTrainAndTest(x, y, peer.FixedNoise(1.3))
    begin = time.process_time()
    predictions = session.run()
    seconds = time.process_time() - begin
    means = np.array([p.pred_avg for p in predictions]) + mean
    truth = np.array([p.val for p in predictions]) + mean
    score = scored(means, (test[0], test[1], truth), seconds, seconds / (burn + samples))
    return score


def surprise(train: Triples, test: Triples) -> dict[str, float]:
    import pandas as pd
    import surprise as peer

    frame = pd.DataFrame({"u": train[0], "i": train[1], "r": train[2].astype(float)})
    data = peer.Dataset.load_from_df(frame, peer.Reader(rating_scale=(1, 5))).build_full_trainset()
    model = peer.SVD(n_factors=RANK, n_epochs=40, lr_all=0.01, reg_all=0.1, random_state=0)
    begin = time.process_time()
    model.fit(data)
    seconds = time.process_time() - begin
    means = np.array([model.predict(u, i).est for u, i in zip(test[0], test[1], strict=True)])
    return scored(means, test, seconds, seconds / model.n_epochs)


def cornac(train: Triples, test: Triples) -> dict[str, float]:
    import cornac as peer

    data = peer.data.Dataset.from_uir(
        list(zip(train[0].tolist(), train[1].tolist(), train[2].astype(float), strict=True)), seed=0
    )
    model = peer.models.MF(
        k=RANK, max_iter=50, learning_rate=0.01, lambda_reg=0.05, use_bias=True, seed=0
    )
    begin = time.process_time()
    model.fit(data)
    seconds = time.process_time() - begin
    users = np.array([data.uid_map.get(u, -1) for u in test[0].tolist()])
    items = np.array([data.iid_map.get(i, -1) for i in test[1].tolist()])
    bias_u, bias_i = np.append(model.u_biases, 0.0), np.append(model.i_biases, 0.0)
    means = model.global_mean + bias_u[users] + bias_i[items]
    known = (users >= 0) & (items >= 0)
    means[known] += np.einsum(
        "nk,nk->n", model.u_factors[users[known]], model.i_factors[items[known]]
    )
    return scored(means, test, seconds, seconds / 50)


def libmf(train: Triples, test: Triples) -> dict[str, float]:
    from libmf import mf

    weak = {"lambda_p1": 0.0, "lambda_q1": 0.0, "lambda_p2": 0.1, "lambda_q2": 0.1}
    model = mf.MF(k=RANK, nr_iters=40, eta=0.05, nr_threads=2, quiet=True, **weak)
    rows = np.column_stack(train)
    begin = time.process_time()
    model.fit(rows)
    seconds = time.process_time() - begin
    # the wrapper's own predict mixes up pairs: the factors are right
    fitted = model.model
    p = np.ctypeslib.as_array(fitted.P, (fitted.m, fitted.k))
    q = np.ctypeslib.as_array(fitted.Q, (fitted.n, fitted.k))
    known = (test[0] < fitted.m) & (test[1] < fitted.n)
    means = np.full(len(test[0]), float(train[2].mean()))
    means[known] = np.einsum("nk,nk->n", p[test[0][known]], q[test[1][known]])
    return scored(means, test, seconds, seconds / 40)


SYSTEMS: dict[str, Callable[[Triples, Triples], dict[str, float]]] = {
    "ours": ours,
    "ours-plain": ours_plain,
    "myfm-gibbs": lambda a, b: myfm(a, b, "MyFMGibbsRegressor", 200),
    "myfm-vi": lambda a, b: myfm(a, b, "VariationalFMRegressor", 20 if is_large(a) else 50),
    "smurff": lambda a, b: smurff(a, b, *((20, 40) if is_large(a) else (50, 150))),
    "surprise-svd": surprise,
    "cornac-mf": cornac,
    "libmf": libmf,
}
BAYESIAN_PEERS = ("myfm-gibbs", "myfm-vi", "smurff")
#: hours on ten million ratings
NOT_FOR_LARGE = ("myfm-gibbs", "surprise-svd")


def is_large(train: Triples) -> bool:
    """Where the samplers get fewer iterations, enough for their error to settle."""
    return len(train[0]) > 5_000_000


def sizes(train: Triples, test: Triples) -> tuple[int, int]:
    return (
        1 + int(max(train[0].max(), test[0].max())),
        1 + int(max(train[1].max(), test[1].max())),
    )


def scored(means: np.ndarray, test: Triples, seconds: float, sweep: float) -> dict[str, float]:
    finite = np.where(np.isfinite(means), means, test[2].mean())
    rmse = float(np.sqrt(np.mean((np.clip(finite, 1, 5) - test[2]) ** 2)))
    return {"rmse": rmse, "cpu": seconds, "sweep": sweep}


# -- data -------------------------------------------------------------------------------------


def folder() -> Path:
    root = Path(__file__).resolve().parents[1]
    given = os.environ.get("DMFVI_DATA")
    places = [Path(given)] if given else []
    places += [root.parent / "shared" / "data", root.parents[1] / "shared" / "data"]
    return next((p / "ratings" for p in places if (p / "ratings").exists()), places[-1] / "ratings")


def splits(name: str) -> list[tuple[Triples, Triples]]:
    """Train and test, once or once per fold; empty where the data are not here."""
    from dmfvi.datasets import make_ratings, split_ratings
    from dmfvi.readers import read_ratings

    if name == "ml-100k":
        where = folder() / "ml-100k"
        if not where.exists():
            return []
        pairs = []
        for fold in range(1, 6):
            both = []
            for part in ("base", "test"):
                table = read_ratings(where / f"u{fold}.{part}")
                both.append(
                    (
                        table.user_ids[table.users] - 1,
                        table.item_ids[table.items] - 1,
                        table.ratings.astype(np.float32),
                    )
                )
            pairs.append((both[0], both[1]))
        return pairs
    if name == "ml-1m":
        where = folder() / "ml-1m" / "ratings.dat"
        if not where.exists():
            return []
        ratings = read_ratings(where).to_matrix()
    else:
        ratings = make_ratings({"1m": 1_000_000, "10m": 10_000_000}[name], seed=1).ratings
    train, test = split_ratings(ratings, 0.1, seed=0)
    rows = train.tocoo()
    return [((rows.row, rows.col, rows.data), (test[0], test[1], test[2].astype(np.float32)))]


# -- running -----------------------------------------------------------------------------------


def work(system: str, file: Path) -> None:
    """In the child: train, score, print one line of JSON."""
    with np.load(file) as a:
        train = a["u"], a["i"], a["r"]
        test = a["tu"], a["ti"], a["tr"]
    result = SYSTEMS[system](train, test)
    print("RESULT " + json.dumps({k: float(v) for k, v in result.items()}))


def run(system: str, file: Path) -> dict[str, float] | str:
    command = [sys.executable, __file__, "--work", system, "--file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line[len("RESULT ") :]))
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"ended with status {done.returncode}"


def compare(name: str, systems: list[str]) -> None:
    pairs = splits(name)
    if not pairs:
        print(f"\n{name}: not here (looked in {folder()})")
        return
    n = np.mean([len(train[0]) for train, _ in pairs])
    print(f"\n{name}: {n:.0f} ratings to learn from, {len(pairs)} split(s), rank {RANK}")
    print(f"{'system':14} {'RMSE':>8} {'covers':>7} {'CPU s':>8} {'s/sweep':>8}")
    means: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = []
        for k, (train, test) in enumerate(pairs):
            path = Path(temporary) / f"{k}.npz"
            parts = dict(zip(("u", "i", "r", "tu", "ti", "tr"), (*train, *test), strict=True))
            np.savez(path, **parts)
            files.append(path)
        for system in systems:
            if name == "10m" and system in NOT_FOR_LARGE:
                print(f"{system:14} left out: takes hours here")
                continue
            results = []
            for file in files:
                result = run(system, file)
                if isinstance(result, str):
                    print(f"{system:14} not run: {result[:90]}")
                    break
                results.append(result)
            else:
                mean = {k: float(np.mean([r[k] for r in results])) for k in results[0]}
                means[system] = mean
                covers = f"{mean['coverage']:7.3f}" if "coverage" in mean else "      -"
                print(
                    f"{system:14} {mean['rmse']:8.4f} {covers} {mean['cpu']:8.2f} {mean['sweep']:8.3f}",
                    flush=True,
                )
    report_ratios(means)


def report_ratios(means: dict[str, dict[str, float]]) -> None:
    """Ours against the others, and against the cost of adding up rows."""
    for mine in ("ours", "ours-plain"):
        if mine not in means:
            continue
        own = means[mine]
        peers = {k: v for k, v in means.items() if not k.startswith("ours")}
        if peers:
            best = min(peers, key=lambda k: peers[k]["rmse"])
            print(f"{mine}: RMSE {own['rmse'] - peers[best]['rmse']:+.4f} against {best}")
        bayesian = {k: v for k, v in peers.items() if k in BAYESIAN_PEERS}
        if bayesian:
            cheap = min(bayesian, key=lambda k: bayesian[k]["cpu"])
            ratio = bayesian[cheap]["cpu"] / own["cpu"]
            print(f"{mine}: {ratio:.1f} times less CPU than {cheap}, the cheapest Bayesian peer")
        if "to_limit" in own:
            print(f"{mine}: a sweep takes {own['to_limit']:.2f} times two passes of 17 ns a rating")


def main() -> None:
    """Print the tables, or do one system's work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="ml-100k,ml-1m,1m,10m")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--work")
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.file)
        return
    for name in options.sets.split(","):
        compare(name, options.systems.split(","))


if __name__ == "__main__":
    main()
