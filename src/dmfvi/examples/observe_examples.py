"""The examples of docs/observe.md, in their order."""
# ruff: noqa

import numpy as np

from dmfvi import BayesianPCA, Network

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(200, 8))


def watch(record, inference):
    if record.swept:
        print(record.round, record.objective, record.change)
    return record.change < 1e-3  # enough for now


pca = BayesianPCA(3, network=Network.ring(4), random_state=0).fit(X, observer=watch)


import mlflow

from dmfvi import BayesianPCA, Network


def tracked(estimator, X, experiment="dmfvi"):
    """Fit with parameters, every round's numbers and the saved model in an MLflow run."""
    mlflow.set_experiment(experiment)

    def log(record, inference):
        numbers = {
            "objective": record.objective,
            "change": record.change,
            "disagreement": record.disagreement,
            "bytes_sent": record.bytes_sent,
        }
        finite = {name: value for name, value in numbers.items() if np.isfinite(value)}
        mlflow.log_metrics(finite, step=record.round)

    with mlflow.start_run():
        mlflow.log_params({name: str(value) for name, value in estimator.get_params().items()})
        estimator.fit(X, observer=log)
        mlflow.log_metric("lower_bound", estimator.lower_bound_)
        mlflow.set_tag("converged", estimator.converged_)
        estimator.report("report.html")
        mlflow.log_artifact("report.html")
    return estimator


mlflow.set_tracking_uri("sqlite:///runs.db")  # a file; or the address of a server
tracked(BayesianPCA(3, network=Network.ring(4), random_state=0), X)
