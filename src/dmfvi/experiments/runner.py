"""Runs experiments case by case: in parallel, resumable, with every figure written by name.

Each finished case is one small JSON file in ``out/cases``; a case is run again only if its parameters, its experiment
or the library's version have changed. ``results.json`` and ``results.csv`` hold the summary.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_limits

from dmfvi import __version__
from dmfvi.experiments import EXPERIMENTS
from dmfvi.experiments.base import Experiment, Outcome, Summary
from dmfvi.experiments.report import note_runs, save_figure
from dmfvi.lifetime import end_with_parent, ignoring_interrupts
from dmfvi.storage.files import write_text

FORMAT = "dmfvi-reproduction"

#: called with the number of cases done and to do
OnCase = Callable[[int, int], None]


class Report(NamedTuple):
    """What one experiment gave."""

    summary: Summary
    figures: list[Path]
    n_cases: int
    n_reused: int


def run_experiment(
    name: str,
    *,
    full: bool,
    data: Path | None,
    out: Path,
    jobs: int,
    on_case: OnCase,
) -> Report:
    """Run what is not there yet, summarise, draw, and merge into ``out/results.json``."""
    experiment = EXPERIMENTS[name]
    cases = experiment.cases(full, data)
    out.mkdir(parents=True, exist_ok=True)
    found: dict[int, Any] = {}
    files = [_case_file(out, name, case) for case in cases]
    for index, (case, file) in enumerate(zip(cases, files, strict=True)):
        known = _read_case(file, case)
        if known is not None:
            found[index] = known
    n_reused = len(found)
    on_case(len(found), len(cases))
    todo = [index for index in range(len(cases)) if index not in found]
    for index, result in _run_cases(name, cases, todo, jobs):
        content = {"experiment": name, "params": cases[index], "found": result}
        write_text(files[index], json.dumps(content, indent=1))
        found[index] = result
        on_case(len(found), len(cases))
    outcomes = [Outcome(case, found[i]) for i, case in enumerate(cases)]
    summary = experiment.summarise(outcomes)

    def draw(figure: Any) -> None:
        experiment.draw(figure, outcomes)
        note_runs(figure, outcomes)

    figures = save_figure(out, name, experiment.size, draw)
    _write_results(out, experiment, summary, cases, full)
    return Report(summary, figures, len(cases), n_reused)


def _run_cases(
    name: str, cases: Sequence[dict[str, Any]], todo: Sequence[int], jobs: int
) -> Iterator[tuple[int, Any]]:
    if jobs == 1 or len(todo) <= 1:
        for index in todo:
            yield index, _run_case(name, cases[index])
        return
    with _pool(min(jobs, len(todo))) as pool:
        with (
            ignoring_interrupts()
        ):  # processes that start within ignore them, too: this one ends them
            waiting = {pool.submit(_run_case, name, cases[index]): index for index in todo}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes (forking would copy locked thread pools); an interrupt ends them."""
    others = set(active_children())
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=end_with_parent,
        initargs=(os.getpid(),),
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(active_children()) - others:
            worker.terminate()
        raise
    pool.shutdown()


def _run_case(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """One case on one thread: cases run side by side."""
    with threadpool_limits(1):
        return EXPERIMENTS[name].run(params)


def _case_file(out: Path, name: str, params: dict[str, Any]) -> Path:
    read = params.get("file")
    digest = hashlib.sha256(Path(read).read_bytes()).hexdigest() if read else ""
    content = json.dumps([FORMAT, __version__, name, params, digest], sort_keys=True)
    return out / "cases" / name / f"{hashlib.sha256(content.encode()).hexdigest()[:20]}.json"


def _read_case(file: Path, params: dict[str, Any]) -> Any:
    """What an earlier run found; None if there is none or it is not this case's."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("params") != params:
        return None
    return content.get("found")


def _write_results(
    out: Path, experiment: Experiment, summary: Summary, cases: Sequence[dict[str, Any]], full: bool
) -> None:
    """Merge this experiment's figures into results.json; results.csv has the same, a line each."""
    path = out / "results.json"
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        content = {}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        content = {}
    kept = {
        key: value
        for key, value in content.get("figures", {}).items()
        if not key.startswith(f"{experiment.name}/")
    }
    versions = {
        "dmfvi": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    figures = kept | {f"{experiment.name}/{k}": _plain(v) for k, v in summary.figures.items()}
    about = content.get("experiments", {}) | {
        experiment.name: {
            "title": experiment.title,
            "mode": "full" if full else "quick",
            "versions": versions,
            "cases": list(cases),
            "seeds": sorted({c[k] for c in cases for k in ("run", "start") if k in c}),
        }
    }
    written = {
        "format": FORMAT,
        "versions": versions,
        "experiments": about,
        "figures": dict(sorted(figures.items())),
    }
    write_text(path, json.dumps(written, indent=1))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["experiment", "system", "case", "metric", "value"])
    for key, value in written["figures"].items():
        writer.writerow([*key.split("/", 3), repr(value)])
    write_text(out / "results.csv", text.getvalue())


def _plain(value: float) -> float | None:
    """A number that JSON knows: not-a-number becomes null."""
    return float(value) if np.isfinite(value) else None
