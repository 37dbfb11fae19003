"""The paper's experiments, one file each, enrolled here by one line."""

from dmfvi.experiments import (
    caltech,
    convergence,
    cube,
    dinosaur,
    hopkins,
    missing,
    netflix_table,
    online,
)
from dmfvi.experiments.base import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        convergence.EXPERIMENT,
        missing.EXPERIMENT,
        cube.EXPERIMENT,
        online.EXPERIMENT,
        caltech.EXPERIMENT,
        hopkins.EXPERIMENT,
        dinosaur.EXPERIMENT,
        netflix_table.EXPERIMENT,
    )
}

__all__ = ["EXPERIMENTS", "Experiment"]
