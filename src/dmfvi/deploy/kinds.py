"""Every estimator as a kind of model that files and the shell can name: its settings, its data, its fit.

Nothing here is written by hand for one estimator: names come from classes, settings from constructors, and what
``fit`` needs beside rows from ``NetworkEstimator._data_form`` and ``_from_columns``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dmfvi import __version__
from dmfvi.consensus import RULES, ExactSum
from dmfvi.deploy.data import READERS, Data, digest, schema
from dmfvi.deploy.settings import NOTHING, settings_of
from dmfvi.engines.base import Engine, Run, Task
from dmfvi.extras import lacking
from dmfvi.inference.federation import Federation
from dmfvi.models import ESTIMATORS
from dmfvi.models.glm.targets import LINKS
from dmfvi.models.regression.formula import parsed, target_of, target_variables
from dmfvi.network import Network
from dmfvi.readers.tables import Reading, Table, read_as
from dmfvi.sizes import check_size
from dmfvi.validation import check_seed, name_features, warn_of_ids, warn_of_units

#: what ``dmfvi fit`` and ``dmfvi node`` run by default
DEFAULT_KIND = "bayesian-pca"
#: columns beside the features that are labels of rows, or truth values, whatever the model
WORD_COLUMNS = ("groups", "strata", "event")
#: where a name of mixed case has its words
WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def kind_of(estimator: type[Any]) -> str:
    """The name of an estimator's class in kebab case."""
    return WORD.sub("-", estimator.__name__).lower()


def has_network(estimator: type[Any]) -> bool:
    """Whether it can run on more than one node."""
    return "network" in inspect.signature(estimator).parameters


#: every estimator by its kind, and those that run on a network
KINDS: dict[str, type[Any]] = {kind_of(estimator): estimator for estimator in ESTIMATORS.values()}
NETWORK_KINDS = {kind: estimator for kind, estimator in KINDS.items() if has_network(estimator)}


#: settings that name terms: ``fit`` has to know the columns' names
TERM_SETTINGS = ("random_slopes", "time_varying")
#: short names of regressions: "logistic" for "bayesian-logistic-regression"
SHORT = {
    kind.removesuffix("-regression").removeprefix("bayesian-"): kind
    for kind in KINDS
    if kind.endswith("-regression")
}
#: the kind that has a family, and its families, which are names of it as well
WITH_FAMILY = "generalized-linear-model"
FAMILIES = tuple(LINKS)
ALIASES = SHORT | dict.fromkeys(("glm", *(f for f in FAMILIES if f not in SHORT)), WITH_FAMILY)


def kind_named(name: str) -> str:
    """The kind of that name: its own, a short one, or the family of a generalized linear model."""
    kind = ALIASES.get(name, name)
    if kind not in KINDS:
        raise ValueError(
            f"kind must be one of {sorted(KINDS)}, or for short {sorted(ALIASES)}, received {name!r}"
        )
    return kind


def columns_of(estimator: type[Any]) -> dict[str, bool]:
    """Columns of its tables that are no features, and whether they are needed."""
    parameters = inspect.signature(estimator._from_columns).parameters
    return {name: each.default is each.empty for name, each in parameters.items()}


@dataclass(frozen=True)
class ModelSettings:
    """A kind with all of its settings; the same at all nodes, or they reject each other's messages."""

    kind: str
    settings: Mapping[str, Any]
    columns: Mapping[str, str | int]

    @classmethod
    def of(cls, kind: str = DEFAULT_KIND, /, **given: Any) -> ModelSettings:
        """Checked settings, those that are not given by default, and columns by name or number from 1."""
        if not isinstance(kind, str):
            raise ValueError(f"kind must be text, received {kind!r}")
        said, kind = kind, kind_named(kind)
        if kind == WITH_FAMILY and said in FAMILIES:
            if given.get("family", said) != said:
                raise ValueError(
                    f"kind {said} is a {kind} of that family, received family = {given['family']!r} too: leave one out"
                )
            given["family"] = said
        known, columns = settings_of(KINDS[kind]), columns_of(KINDS[kind])
        strange = sorted(set(given) - set(known) - set(columns))
        if strange == ["target"] and "time" in columns:
            raise ValueError(f"a {kind} needs time and event, not target: name their columns")
        if strange:
            raise ValueError(f"a {kind} has no {strange}, known are {sorted([*known, *columns])}")
        text = None if given.get("formula") == NOTHING else given.get("formula")
        named = _targets_in(kind, text) if "formula" in known and isinstance(text, str) else []
        if named and "target" not in columns:
            others = " and ".join(name for name, needed in columns.items() if needed)
            raise ValueError(
                f"formula = {text!r} has a left-hand side: write ~ a + b for a {kind}, and name the columns of {others}"
            )
        for name, needed in columns.items():
            if named and name == "target" and name in given:
                raise ValueError(
                    f"target = {given[name]!r}, and the formula has the target {target_of(str(text))!r}: leave one out"
                )
            if needed and name not in given and not (named and name == "target"):
                raise ValueError(f"a {kind} needs {name}, the name or number of a column")
            if name in given and type(given[name]) not in (str, int):
                raise ValueError(
                    f"{name} must be the name or number of a column, received {given[name]!r}"
                )
        settings = {
            name: each.parsed(given[name], kind) if name in given else each.default
            for name, each in known.items()
        }
        return cls(kind, settings, {name: given[name] for name in columns if name in given})

    @property
    def title(self) -> str:
        """The kind's name for people."""
        return WORD.sub(" ", KINDS[self.kind].__name__)

    @property
    def form(self) -> str:
        """What a file of data holds: rows, sequences, tracks or ratings."""
        return str(KINDS[self.kind]._data_form)

    @property
    def leaves_text_out(self) -> bool:
        """Whether columns of text can be left out: a table of rows, and nothing that they could explain."""
        estimator = KINDS[self.kind]
        explains = estimator._has_features and {"target", "time"} & set(columns_of(estimator))
        return self.form in ("rows", "sequences") and not explains

    def shared(self, data: Data) -> dict[str, str]:
        """What all nodes of one model have in common, as texts: kind, settings, columns with names and order."""
        n_columns, names = schema(data)
        facts = {"kind": self.kind, **self.settings, **self.columns, "dmfvi": __version__}
        facts |= {"number of columns": n_columns, "columns": names}
        return {name: json.dumps(value) for name, value in facts.items()}

    def fingerprint(self, data: Data) -> bytes:
        """Sixteen bytes of ``shared``: nodes with others do not take part in the same fit."""
        text = json.dumps(self.shared(data), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()[:16]

    def read(self, path: Path, reading: Reading | None = None) -> Data:
        """Data of this kind from a file."""
        reading = reading or Reading()
        if self.formula is not None:
            variables = [*parsed(self.formula).variables, *target_variables(self.formula)]
            needed = tuple(dict.fromkeys([*variables, *self.columns.values()]))
            chosen = replace(reading.selection, columns=needed)
            try:
                return read_as(path, replace(reading, selection=chosen), needed, gaps=True)
            except ValueError as error:  # blame the formula, which named the columns
                for variable in variables:
                    wrong = f"--columns = {variable!r}"
                    if str(error).startswith(wrong):
                        text = f"formula = {self.formula!r}: {variable!r}{str(error)[len(wrong) :]}"
                        raise ValueError(text) from error
                raise
        kept = tuple(c for name, c in self.columns.items() if self._may_be_words(name))
        selected = reading
        if self.columns and not KINDS[self.kind]._has_features:
            only = replace(reading.selection, columns=tuple(self.columns.values()))
            selected = replace(reading, selection=only)
        elif reading.selection.columns:  # what is named beside the features takes part, too
            beside = tuple(self.columns.values())
            selected = replace(reading, selection=replace(reading.selection, beside=beside))
        try:
            return READERS[self.form](path, selected, kept)
        except ValueError as error:
            for name, given in self.columns.items():  # blame the setting that named the column
                for what in ("column", "--columns"):
                    wrong = f"{what} = {given!r}"
                    if str(error).startswith(wrong) and given not in reading.selection.columns:
                        text = f"{name} = {given!r}{str(error)[len(wrong) :]}"
                        raise ValueError(text) from error
            raise

    def in_agreed_order(self, data: Data) -> Data:
        """Columns in the order of their names, which is the same at nodes whose files have them in another order.

        They stay as they are where they have no names, a setting numbers them, the formula orders them, or their order says what they are.
        """
        if not isinstance(data, Table) or data.columns is None or self.formula is not None:
            return data
        if not self.columns and not KINDS[self.kind]._has_features:
            return data  # which column is which is told by their order alone
        if any(isinstance(given, int) for given in self.columns.values()):
            return data
        return data.in_order(sorted(data.columns))

    @property
    def formula(self) -> str | None:
        """That of a regression, None without one."""
        return self.settings.get("formula")

    @property
    def beside(self) -> list[str | int]:
        """Columns that are no features: the target, groups, weights and the like."""
        targets = [] if self.formula is None else target_variables(self.formula)
        return [*self.columns.values(), *targets]

    @property
    def _as_frame(self) -> bool:
        """Whether rows go in as a frame: the formula or a setting names columns, or rows may lack entries."""
        incomplete = self.settings.get("missing") in ("drop", "impute")
        named = any(self.settings.get(name) for name in TERM_SETTINGS)
        return "formula" in self.settings and (self.formula is not None or incomplete or named)

    def _may_be_words(self, name: str) -> bool:
        """Whether a further column may hold words: groups, strata and events, classes, or names of sequences."""
        return name in WORD_COLUMNS or self.form == "sequences" or is_classifier(self.estimator())

    def estimator(self) -> Any:
        """The estimator with these settings."""
        return KINDS[self.kind](**self.settings)

    def details(self, data: Data) -> dict[str, Any]:
        """What a model's file says of the data beside the estimator's own settings."""
        return {"kind": self.kind, "columns": schema(data)[1], **self.columns}

    def check(self, data: Data) -> None:
        """Refuse settings and data that cannot work, before anybody is met.

        A fit is begun on a network where it ends with the first message: whatever it checks by itself, it has
        checked by then.
        """
        if self.kind not in NETWORK_KINDS:
            raise ValueError(f"a {self.kind} runs on one machine only, it has no network")
        check_seed(self.settings["random_state"])
        with warnings.catch_warnings(), suppress(FirstMessage):
            warnings.simplefilter("ignore")
            self.fit(data, Network.of_component(2, [(0, 1)]), Rehearsal())

    def fit(
        self,
        data: Data,
        network: Network | None = None,
        engine: str | Engine = "local",
        verbose: int = 0,
    ) -> Any:
        """The fitted estimator: on one machine, or the part of a network that runs in this process."""
        model = self.estimator()
        if self.kind in NETWORK_KINDS:
            where = None if network is None else self._federation(network, engine)
            model.set_params(network=where, verbose=verbose)
        rows, columns, further = self.arguments(data)
        if not self._as_frame:
            if model._data_form == "rows" and (network is None or engine == "local"):
                check_size([rows], columns)
            warn_of_ids([rows], columns)
        if model._one_noise:
            warn_of_units([rows], columns)
        model.fit(rows, **further)
        self._name_columns(model, columns)
        return model

    def fit_parts(self, parts: Sequence[Data], network: Network | None, verbose: int = 0) -> Any:
        """The fitted estimator: all nodes in this process, each with data of its own."""
        model = self.estimator()
        model.set_params(network=network, verbose=verbose)
        split = [self.arguments(part) for part in parts]
        rows: list[Any] = [part[0] for part in split]
        columns = split[0][1]
        if not self._as_frame:
            warn_of_ids(rows, columns)
        if model._one_noise:
            warn_of_units(rows, columns)
        if self.form == "sequences":
            model.fit(
                [
                    np.split(x, np.cumsum(more["lengths"])[:-1]) if more else [x]
                    for x, _, more in split
                ]
            )
        else:
            model.fit(rows, **{name: [part[2][name] for part in split] for name in split[0][2]})
        self._name_columns(model, columns)
        return model

    def _name_columns(self, model: Any, columns: list[str] | None) -> None:
        """Let the fitted estimator know what its columns and its target are called."""
        name_features(model, None if self._as_frame else columns)
        target = self.columns.get("target")
        if isinstance(target, str) and hasattr(model, "_target_name"):
            model._target_name = target

    def arguments(self, data: Data) -> tuple[Any, list[str] | None, dict[str, Any]]:
        """What ``fit`` is given: the rows, the names of their columns, and what else it takes."""
        if not isinstance(data, Table):
            return data, None, {}
        positions = {name: data.position(given, name) for name, given in self.columns.items()}
        if positions and not KINDS[self.kind]._has_features:
            return self._pairs(data, positions)
        rows = np.delete(data.data, list(positions.values()), axis=1)
        if not rows.shape[1]:
            raise ValueError(f"the table has no column beside {' and '.join(positions)}")
        if self._as_frame:
            return self._frame_arguments(data, positions)
        if self.form == "rows" and not KINDS[self.kind]._takes_missing:
            _check_complete(data, self.kind)
        further = {
            name: data.labels.get(position, data.data[:, position])
            for name, position in positions.items()
        }
        names = data.columns and [
            c for i, c in enumerate(data.columns) if i not in positions.values()
        ]
        return rows, names, self._given(further)

    def _pairs(
        self, data: Table, positions: Mapping[str, int]
    ) -> tuple[Any, list[str] | None, dict[str, Any]]:
        """As ``arguments`` of a model whose rows are the named columns alone."""
        _check_complete(data, self.kind)
        further = {n: data.labels.get(p, data.data[:, p]) for n, p in positions.items()}
        rows = self._given(further)["X"]
        return rows, data.columns and [data.columns[p] for p in positions.values()], {}

    def _frame_arguments(
        self, data: Table, positions: Mapping[str, int]
    ) -> tuple[Any, list[str] | None, dict[str, Any]]:
        """As ``arguments``, the rows as a frame with the columns that are no offset, weight or the like."""
        further: dict[str, Any] = {
            name: _with_gaps(data.labels.get(p, data.data[:, p])) for name, p in positions.items()
        }
        if self.formula is not None and target_variables(self.formula):
            further["target"] = None
        beside = set(positions.values())
        if self.formula is not None:  # a column may be an exposure, say, and a term too
            beside -= {data.position(name, "formula") for name in parsed(self.formula).variables}
        kept = [p for p in range(data.data.shape[1]) if p not in beside]
        whole = data.taking(kept)
        made = self._given(further)
        return frame_of(whole), whole.columns, {n: v for n, v in made.items() if v is not None}

    def _given(self, further: Mapping[str, Any]) -> dict[str, Any]:
        """What ``fit`` takes of the further columns; an error names the column."""
        try:
            return dict(KINDS[self.kind]._from_columns(**further))
        except ValueError as error:
            for name, column in self.columns.items():
                if str(error).startswith(f"{name} holds"):
                    raise ValueError(f"{name} = {column!r}{str(error)[len(name) :]}") from error
            raise

    def _federation(self, network: Network, engine: str | Engine) -> Network | Federation:
        """Where messages may be lost an estimator whose own rule needs them all has one that does not."""
        if engine == "local":
            return network
        usual = RULES[KINDS[self.kind]._consensus]
        lossy = not isinstance(engine, str) and not engine.reliable
        rule = ExactSum.name if lossy and not usual.tolerates_loss else "auto"
        return Federation(network, rule, engine)

    def run_mark(self, data: Data, *others: str) -> str:
        """Tells a run with these settings and data from others, for checkpoints.

        More sweeps may be asked for when resuming, unless they are a fixed number.
        """
        facts = self.shared(data)
        if self.settings.get("tol") is not None:
            facts.pop("max_iter", None)
        parts = [json.dumps(facts, sort_keys=True), digest(data).hex(), *others]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]


class FirstMessage(Exception):
    """A fit has come to where it needs other nodes."""


class Rehearsal:
    """An engine that runs one node until its first message."""

    name, transport = "rehearsal", "auto"
    reliable = False

    def owned(self, network: Network) -> Sequence[int]:
        """The first node."""
        return [0]

    def run(self, task: Task) -> Run:
        """Nobody is met."""
        raise FirstMessage


def _targets_in(kind: str, text: str) -> list[str]:
    """Columns of a formula's left-hand side."""
    try:
        return target_variables(text)
    except ValueError as error:
        raise ValueError(
            f"formula of a {kind} must be one as y ~ a + b, received {text!r}: {error}"
        ) from error


def frame_of(table: Table) -> Any:
    """A pandas frame of a table, words as they are and None where one is missing."""
    try:
        import pandas
    except ImportError as error:
        raise lacking("a formula or missing=", "pandas", "formula") from error
    names = table.columns or [f"x{position}" for position in range(table.data.shape[1])]
    made = {}
    for position, name in enumerate(names):
        values = table.labels.get(position, table.data[:, position])
        if values.dtype.kind == "U":
            values = np.array([word or None for word in values.tolist()], dtype=object)
        made[name] = values
    return pandas.DataFrame(made)


def _with_gaps(values: Any) -> Any:
    """A column in which "" stands for a missing cell: numbers with NaN, or words with None."""
    if values.dtype.kind != "U" or (values != "").all():
        return values
    filled = np.where(values == "", "nan", values)
    try:
        return filled.astype(np.float64)
    except ValueError:
        return np.array([word or None for word in values.tolist()], dtype=object)


def _check_complete(table: Table, kind: str) -> None:
    words = [p for p, column in table.labels.items() if column.dtype.kind == "U"]
    missing = np.argwhere(np.isnan(table.data))
    missing = missing[~np.isin(missing[:, 1], words)]
    if len(missing):
        row, column = (int(v) for v in missing[0])
        name = column + 1 if table.columns is None else repr(table.columns[column])
        ways = "drop the row or fill it first (dmfvi fit and dmfvi impute)"
        if "missing" in settings_of(KINDS[kind]):
            ways = "say --set missing=drop or --set missing=impute (missing in node.toml), or fill it first (dmfvi impute)"
        raise ValueError(
            f"sample {row + 1} (counted from 1) has no value in column {name}: a {kind} needs them all, {ways}"
        )
