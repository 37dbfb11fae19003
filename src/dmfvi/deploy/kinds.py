"""Which models ``dmfvi node`` runs: the settings of each kind, and the estimator they mean.

A kind is a data class of plain settings, the [model] table of a node's file; one line in ``KINDS`` enrols it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dmfvi.engines.base import Engine
from dmfvi.inference.federation import Federation
from dmfvi.linalg import FloatArray
from dmfvi.models.chains.estimator import GaussianHMM
from dmfvi.models.mixture.estimator import BayesianGaussianMixture
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.models.regression.estimator import BayesianLinearRegression, BayesianLogisticRegression
from dmfvi.models.sfm.estimator import StructureFromMotion
from dmfvi.models.sfm.measurements import as_matrix, check_camera
from dmfvi.network import Network
from dmfvi.readers.tables import Table, read_table
from dmfvi.readers.tracks import read_tracks
from dmfvi.validation import (
    check_choice,
    check_n_components,
    check_positive,
    check_whole,
    name_features,
)

#: settings that nodes need not share
LOCAL = {"max_iter"}


@dataclass(frozen=True)
class ModelSettings:
    """What all kinds share; the same at all nodes, or they will not talk to each other."""

    kind: ClassVar[str]
    tol: float = 1e-6
    max_iter: int = 20_000
    seed: int = 0

    def fingerprint(self, n_features: int, columns: list[str] | None = None) -> bytes:
        """Sixteen bytes that all nodes of one model share: kind, settings, columns with their names and order."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in LOCAL}
        content |= {"features": n_features, "columns": columns}
        text = json.dumps([self.kind, content], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()[:16]

    def read(self, path: Path) -> Table:
        """This node's own data."""
        return read_table(path)

    def check(self, table: Table) -> None:
        """Refuse settings and rows that this kind cannot work with, before anybody is met."""
        check_positive("tol", self.tol)
        check_whole("max_iter", self.max_iter, 1)

    def estimator(self) -> Any:
        """The estimator with this kind's own settings."""
        raise NotImplementedError

    def arguments(self, table: Table) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the estimator's ``fit`` is given."""
        return (table.data,), {}

    def features(self, table: Table) -> list[str] | None:
        """Names of the columns that the estimator is fitted to."""
        return table.columns

    def details(self) -> dict[str, Any]:
        """What the file of a model must say of it to be used."""
        return {}

    def fit(self, table: Table, network: Network, engine: str | Engine) -> Any:
        """The fitted estimator, on one node of a network."""
        model = self.estimator()
        model.set_params(
            network=Federation(network, engine=engine),
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=self.seed,
        )
        given, named = self.arguments(table)
        model.fit(*given, **named)
        name_features(model, self.features(table))
        return model


@dataclass(frozen=True)
class PcaModel(ModelSettings):
    """Bayesian PCA."""

    kind = "bayesian-pca"
    components: int = 2
    covariance: str = "full"
    fit_mean: bool = True

    def check(self, table: Table) -> None:
        super().check(table)
        check_n_components(self.components, table.data.shape[1])
        check_choice("covariance", self.covariance, ["full", "diag"])

    def estimator(self) -> BayesianPCA:
        return BayesianPCA(
            self.components,
            covariance_type=self.covariance,  # type: ignore[arg-type]
            fit_mean=self.fit_mean,
        )


@dataclass(frozen=True)
class GaussianMixtureModel(ModelSettings):
    """A mixture of Gaussians."""

    kind = "gaussian-mixture"
    components: int = 2
    covariance: str = "full"
    starts: int = 1

    def check(self, table: Table) -> None:
        super().check(table)
        check_whole("components", self.components, 1)
        check_whole("starts", self.starts, 1)
        check_choice("covariance", self.covariance, ["full", "diag"])

    def estimator(self) -> BayesianGaussianMixture:
        return BayesianGaussianMixture(
            self.components,
            covariance_type=self.covariance,  # type: ignore[arg-type]
            n_init=self.starts,
        )


@dataclass(frozen=True)
class RegressionModel(ModelSettings):
    """Rows with a target among their columns, by name or by number from 1."""

    target: str | int = ""
    fit_intercept: bool = True

    def check(self, table: Table) -> None:
        super().check(table)
        column_of(table, self.target, "target")
        if np.isnan(table.data).any():
            row, column = (int(v) for v in np.argwhere(np.isnan(table.data))[0])
            name = column + 1 if table.columns is None else repr(table.columns[column])
            raise ValueError(
                f"sample {row + 1} has no value in column {name}: a regression needs them all, drop the row or "
                "fill it first (dmfvi fit and dmfvi impute)"
            )
        if table.data.shape[1] < 2:
            raise ValueError("the table has no column beside the target")

    def arguments(self, table: Table) -> tuple[tuple[Any, ...], dict[str, Any]]:
        rows, target = without_column(table.data, column_of(table, self.target, "target"))
        return (rows, target), {}

    def features(self, table: Table) -> list[str] | None:
        return without_name(table, self.target)

    def details(self) -> dict[str, Any]:
        return {"target": self.target}


@dataclass(frozen=True)
class LinearRegressionModel(RegressionModel):
    """Linear regression with unknown noise."""

    kind = "linear-regression"

    def estimator(self) -> BayesianLinearRegression:
        return BayesianLinearRegression(fit_intercept=self.fit_intercept)


@dataclass(frozen=True)
class LogisticRegressionModel(RegressionModel):
    """Logistic regression; ``classes`` lists all labels that any node may have."""

    kind = "logistic-regression"
    classes: tuple[float, ...] = (0.0, 1.0)

    def check(self, table: Table) -> None:
        super().check(table)
        if len(set(self.classes)) < 2:
            raise ValueError(f"classes must be two labels or more, received {list(self.classes)}")
        _, labels = without_column(table.data, column_of(table, self.target, "target"))
        strange = np.setdiff1d(labels, self.classes)
        if len(strange):
            raise ValueError(
                f"the target has labels {strange[:5].tolist()} that are not in classes = {list(self.classes)}"
            )

    def estimator(self) -> BayesianLogisticRegression:
        return BayesianLogisticRegression(
            fit_intercept=self.fit_intercept, classes=np.array(self.classes)
        )

    def details(self) -> dict[str, Any]:
        return super().details() | {"classes": sorted(set(self.classes))}


@dataclass(frozen=True)
class GaussianHmmModel(ModelSettings):
    """A hidden Markov model: rows in order of time; ``sequence`` names a column that numbers the sequences."""

    kind = "gaussian-hmm"
    components: int = 2
    covariance: str = "full"
    starts: int = 1
    sequence: str | int = ""

    def check(self, table: Table) -> None:
        super().check(table)
        check_whole("components", self.components, 1)
        check_whole("starts", self.starts, 1)
        check_choice("covariance", self.covariance, ["full", "diag"])
        self.arguments(table)

    def estimator(self) -> GaussianHMM:
        return GaussianHMM(
            self.components,
            covariance_type=self.covariance,  # type: ignore[arg-type]
            n_init=self.starts,
        )

    def arguments(self, table: Table) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.sequence == "":
            return (table.data,), {}
        rows, number = without_column(table.data, column_of(table, self.sequence, "sequence"))
        if np.isnan(number).any() or rows.shape[1] == 0:
            raise ValueError(
                f"column {self.sequence!r} must number the sequences of all rows, beside other columns"
            )
        lengths = np.diff(np.flatnonzero(np.r_[True, np.diff(number) != 0, True]))
        return (rows,), {"lengths": lengths}

    def features(self, table: Table) -> list[str] | None:
        return table.columns if self.sequence == "" else without_name(table, self.sequence)


@dataclass(frozen=True)
class StructureModel(ModelSettings):
    """Structure from motion: this camera's tracks, two rows a frame, a column for each point of all cameras."""

    kind = "structure-from-motion"
    metric: str = "orthographic"

    def read(self, path: Path) -> Table:
        return Table(as_matrix(read_tracks(path)), None)

    def check(self, table: Table) -> None:
        super().check(table)
        check_choice("metric", self.metric, ["orthographic", "scaled-orthographic", "none"])
        check_camera(0, as_matrix(table.data))

    def estimator(self) -> StructureFromMotion:
        return StructureFromMotion(metric=None if self.metric == "none" else self.metric)  # type: ignore[arg-type]

    def details(self) -> dict[str, Any]:
        return {"metric": self.metric}


def column_of(table: Table, name: str | int, what: str) -> int:
    """The place of a column that is given by name, or by number from 1."""
    if isinstance(name, str):
        if not name:
            raise ValueError(f"[model] needs {what}, the name or number of a column")
        if table.columns is None:
            raise ValueError(f"{what} = {name!r}, but the table's columns have no names: number it")
        if name not in table.columns:
            raise ValueError(f"{what} = {name!r} is none of the columns {table.columns[:10]}")
        return table.columns.index(name)
    if not 1 <= name <= table.data.shape[1]:
        raise ValueError(
            f"{what} = {name} is not in 1..{table.data.shape[1]}, the columns' numbers"
        )
    return name - 1


def without_column(data: FloatArray, column: int) -> tuple[FloatArray, FloatArray]:
    """The other columns, and that one."""
    return np.delete(data, column, axis=1), data[:, column]


def without_name(table: Table, name: str | int) -> list[str] | None:
    """Names of the other columns."""
    if table.columns is None:
        return None
    place = column_of(table, name, "column")
    return [other for i, other in enumerate(table.columns) if i != place]


#: one line enrols a kind
KINDS: dict[str, type[ModelSettings]] = {
    model.kind: model
    for model in (
        PcaModel,
        GaussianMixtureModel,
        LinearRegressionModel,
        LogisticRegressionModel,
        GaussianHmmModel,
        StructureModel,
    )
}
