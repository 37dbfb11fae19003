"""The models against scikit-learn, hmmlearn and gensim, both sides in one run; and rounds of a mixture."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from dmfvi import Network
from dmfvi.inference.session import infer
from dmfvi.models import GaussianMixture, HiddenMarkov, LatentDirichletAllocation
from dmfvi.models.chains.emissions import CategoricalEmission, GaussianEmission
from dmfvi.models.chains.model import Sequences
from dmfvi.models.mixture.shard import MixtureShard
from dmfvi.models.topics.model import Documents

REPEATS = 5
N = 100_000
#: rounds at most, and wanted, for ten nodes
TARGETS = {
    "complete": (Network.complete(10), 45, 45),
    "star": (Network.star(10), 50, 50),
    "ring": (Network.ring(10), 85, 50),
    "chain": (Network.chain(10), 145, 90),
}


def data_folder() -> Path | None:
    """Where real data lie, if anywhere."""
    here = Path(__file__).resolve().parents[1]
    for folder in (os.environ.get("DMFVI_DATA"), here / ".." / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    return None


def median_seconds(action: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median CPU time after one call that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return float(np.median(times))


def mixture_rows(n: int, d: int, k: int, spread: float = 4.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = spread * rng.normal(size=(k, d)) / np.sqrt(d)
    return centres[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def mixture_iteration(d: int, k: int) -> tuple[float, float]:
    """Seconds of one pooled sweep and of one scikit-learn iteration."""
    from sklearn.mixture import BayesianGaussianMixture

    data = mixture_rows(N, d, k)
    covariance = np.cov(data.T)
    model = GaussianMixture(k, 1 / k, data.mean(0), 1.0, float(d), covariance, covariance)
    shard = MixtureShard.of(data)
    q = infer(model, [shard], max_iter=2, random_state=0).posterior

    def ours() -> object:
        total = model.statistics(shard, q)
        return model.absorb(total, total, q)

    def theirs(iterations: int) -> Callable[[], object]:
        peer = BayesianGaussianMixture(
            n_components=k,
            weight_concentration_prior_type="dirichlet_distribution",
            max_iter=iterations,
            tol=0.0,
            init_params="random_from_data",
            random_state=0,
        )
        return lambda: peer.fit(data)

    slow = (median_seconds(theirs(12), 3) - median_seconds(theirs(2), 3)) / 10
    return median_seconds(ours), slow


def chain_iteration(k: int, categorical: bool) -> tuple[float, float]:
    """Seconds of one pooled sweep and of one hmmlearn iteration."""
    from hmmlearn.vhmm import VariationalCategoricalHMM, VariationalGaussianHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    states = np.cumsum(rng.random(N) < 0.05) % k
    lengths = np.full(100, N // 100)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    emission: object
    if categorical:
        chances = rng.dirichlet(np.full(10, 0.5), size=k).cumsum(1)
        symbols = (rng.random((N, 1)) > chances[states][:, :-1]).sum(1).astype(np.int64)
        emission, observations, rows = CategoricalEmission(np.full(10, 0.1)), symbols, symbols
        peer, extra = VariationalCategoricalHMM, {}
    else:
        rows = 3.0 * rng.normal(size=(k, 2))[states] + rng.normal(size=(N, 2))
        emission = GaussianEmission(np.zeros(2), 1.0, 2.0, np.eye(2), np.cov(rows.T))
        observations, peer, extra = MixtureShard.of(rows), VariationalGaussianHMM, {}
    model = HiddenMarkov(k, emission, np.full(k, 1 / k), np.full((k, k), 1 / k))
    shard = Sequences(observations, starts)
    q = infer(model, [shard], max_iter=2, random_state=0).posterior

    def ours() -> object:
        total = model.statistics(shard, q)
        return model.absorb(total, total, q)

    def theirs(iterations: int, implementation: str) -> Callable[[], object]:
        made = peer(
            k,
            n_iter=iterations,
            tol=-np.inf,
            random_state=0,
            implementation=implementation,
            **extra,
        )
        return lambda: made.fit(rows.reshape(N, -1), lengths)

    slow = min(
        (median_seconds(theirs(6, how), 3) - median_seconds(theirs(2, how), 3)) / 4
        for how in ("log", "scaling")
    )
    return median_seconds(ours), slow


def topics_passes(counts: sparse.csr_matrix, k: int, passes: int = 10) -> dict[str, float]:
    """Seconds per pass over all documents, priors 1/K, else the defaults of each library."""
    from sklearn.decomposition import LatentDirichletAllocation as ScikitLearn

    terms = counts.shape[1]
    model = LatentDirichletAllocation(k, terms, np.full(k, 1 / k), 1 / k)
    matrix = sparse.csr_array(counts)

    def ours() -> object:
        return infer(model, [Documents.of(matrix)], max_iter=passes - 1, random_state=0)

    def scikit_learn() -> object:
        return ScikitLearn(k, learning_method="batch", max_iter=passes, random_state=0).fit(counts)

    sides = {"dmfvi": ours, "scikit-learn": scikit_learn}
    try:
        from gensim.matutils import Sparse2Corpus
        from gensim.models import LdaModel
    except ImportError as error:
        print(f"gensim is not usable here ({error})")
    else:
        corpus = [list(doc) for doc in Sparse2Corpus(counts, documents_columns=False)]
        words = {i: str(i) for i in range(terms)}
        settings = {"passes": passes, "update_every": 0, "eval_every": None, "random_state": 0}
        sides["gensim"] = lambda: LdaModel(corpus, k, words, **settings)
    return {
        name: median_seconds(action, 1 if name == "gensim" else 3) / passes
        for name, action in sides.items()
    }


def rounds_of_a_mixture(separation: float, seed: int) -> dict[str, tuple[int, int]]:
    """Rounds until every node is within 1e-6 of pooled: ten nodes, class-sorted, K 3, D 2."""
    rng = np.random.default_rng(seed)
    centres = separation * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    data = np.concatenate([c + rng.normal(size=(100, 2)) for c in centres])
    data = (data - data.mean(0)) / data.std(0, ddof=1)
    covariance = np.cov(data.T)
    model = GaussianMixture(3, 1 / 3, np.zeros(2), 1.0, 2.0, covariance, covariance)
    shards = [MixtureShard.of(part) for part in np.array_split(data, 10)]
    reference = infer(
        model, [MixtureShard.of(data)], tol=1e-11, random_state=0, max_iter=5000
    ).posterior
    found = {}
    for name, (network, _, _) in TARGETS.items():
        reached = []
        for acceleration in ("auto", False):
            at: list[int] = []

            def observe(record, so_far, at=at):
                near = record.swept and all(q.distance(reference) < 1e-6 for q in so_far.posteriors)
                return at.append(record.round) or True if near else None

            infer(
                model,
                shards,
                network,
                observer=observe,
                random_state=0,
                acceleration=acceleration,
                max_iter=20_000,
            )
            reached.append(at[0] if at else -1)
        found[name] = (reached[0], reached[1])
    return found


def main() -> None:
    """Print every comparison."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are cut short to be timed
    console = Console(width=110)
    numba.config.NUMBA_NUM_THREADS = 1
    with threadpool_limits(1):
        console.print(speed_table())
    console.print(rounds_table())


def speed_table() -> Table:
    """Pooled iterations against the peers."""
    speed = Table(
        title=f"CPU seconds a pooled iteration on one thread, {N:,} samples, one run, medians"
    )
    for column in ("model", "dmfvi", "peer", "ratio"):
        speed.add_column(column, justify="left" if column == "model" else "right")
    for d, k in ((2, 3), (10, 5), (20, 10)):
        ours, theirs = mixture_iteration(d, k)
        speed.add_row(
            f"mixture D {d} K {k}, scikit-learn",
            f"{ours:.4f}",
            f"{theirs:.4f}",
            f"{theirs / ours:.1f}",
        )
    for k, categorical in ((3, False), (8, False), (3, True)):
        ours, theirs = chain_iteration(k, categorical)
        kind = "categorical" if categorical else "Gaussian"
        speed.add_row(
            f"{kind} HMM K {k}, hmmlearn (faster of log, scaling)",
            f"{ours:.4f}",
            f"{theirs:.4f}",
            f"{theirs / ours:.1f}",
        )
    folder = data_folder()
    if folder is None:
        print("AP corpus not found (set DMFVI_DATA): topics are not compared")
    else:
        with np.load(folder / "text" / "associatedpress_coo.npz") as file:
            place = (file["doc"], file["term"])
            counts = sparse.csr_matrix((file["count"], place), shape=tuple(file["shape"]))
        counts = counts[np.asarray(counts.sum(1)).ravel() > 0]
        for k in (10, 50, 100):
            seconds = topics_passes(counts, k)
            ours = seconds.pop("dmfvi")
            for peer, theirs in seconds.items():
                speed.add_row(
                    f"LDA K {k}, AP, a pass, {peer}",
                    f"{ours:.3f}",
                    f"{theirs:.3f}",
                    f"{theirs / ours:.1f}",
                )
    return speed


def rounds_table() -> Table:
    """Rounds of a mixture on four graphs, with acceleration and without."""
    rounds = Table(
        title="Mixture, 10 nodes, class-sorted, K 3, D 2: rounds to 1e-6 (without acceleration)"
    )
    rounds.add_column("separation")
    for name, (_, most, wanted) in TARGETS.items():
        rounds.add_column(f"{name} (most {most}, wanted {wanted})", justify="right")
    for separation in (3.0, 4.0, 5.0, 6.0):
        sets = [rounds_of_a_mixture(separation, seed) for seed in range(5)]
        cells = []
        for name in TARGETS:
            fast = [one[name][0] for one in sets]
            plain = [one[name][1] for one in sets]
            cells.append(f"{int(np.median(fast))}, worst {max(fast)} ({int(np.median(plain))})")
        rounds.add_row(f"{separation:g}", *cells)
    return rounds


if __name__ == "__main__":
    main()
