"""What people see of a fitted estimator: tables, figures, a report, and its representation."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dmfvi.parameters import parameter_table
from dmfvi.summary_table import SummaryTable


class PresentationMixin(BaseEstimator):
    """Summary, figures and report of an estimator."""

    history_: dict[str, Any]
    converged_: bool
    lower_bound_: float
    n_iter_: int
    n_rounds_: int
    n_start_rounds_: int
    _summarised: ClassVar[tuple[str, ...]]

    def summary(self, level: float = 0.9) -> str:
        """The table of parameters, where it is known, and how the fit went; as text.

        Deviations and central intervals of that level need the data, unless it is a regression: a model that was fitted in batches or
        in several processes has no table here, and one from a file has it if it was asked for before.
        """
        check_is_fitted(self)
        table = [self._parameter_table(level).text()] if self._has_table else []
        return "\n".join([*table, self._run_words()])

    def summary_frame(self, level: float = 0.9) -> Any:
        """The table of parameters as a pandas DataFrame."""
        return self._checked_table(level).frame()

    def summary_html(self, level: float = 0.9) -> str:
        """The table of parameters as HTML."""
        return self._checked_table(level).html()

    def plot_forest(
        self, ax: Any = None, level: float = 0.9, *, intercept: bool | None = None
    ) -> Any:
        """Draw estimates with their intervals, ratios where the table has them; returns the matplotlib Axes.

        The intercept is no ratio and is left out of these, unless ``intercept`` is True. Of other models each quantity has Axes of its own,
        unless ``ax`` is given: an array of them is returned.
        """
        return self._checked_table(level).plot(ax, intercept)

    def _checked_table(self, level: float) -> SummaryTable:
        check_is_fitted(self)
        if not (self._has_table or self._summarised):
            raise ValueError(
                f"a {type(self).__name__} has no table of parameters: see its fitted attributes and summary()"
            )
        return self._parameter_table(level)

    @property
    def _has_table(self) -> bool:
        """Whether the table of parameters is kept, or can be made here without asking other processes."""
        context = getattr(self, "_context", None)
        if context is None:
            return any(name in getattr(self, "_quantities", {}) for name in self._summarised)
        return bool(self._summarised) and context.session.whole

    def _parameter_table(self, level: float) -> SummaryTable:
        return parameter_table(self, level)

    def _run_words(self) -> str:
        """How the fit went, in a few lines of text."""
        how = getattr(self, "consensus_", {})
        lines = [f"{type(self).__name__}: {self._outcome()}"]
        if hasattr(self, "n_rounds_"):
            count = int(how.get("nodes", 1))
            rule = " by ".join(str(how[k]) for k in ("rule", "transport") if k in how)
            lines.append(
                f"{self.n_iter_} sweeps, {self.n_rounds_} message rounds (+ {self.n_start_rounds_} for the start), "
                f"{count} node{'s' if count > 1 else ''}, {rule}"
            )
            lines.append(f"evidence lower bound {self.lower_bound_:.8g}")
        if hasattr(self, "members_"):
            rows = sum(each["rows"] for each in self.members_)
            nodes = ", ".join(str(each["node"]) for each in self.members_)
            lines.append(f"data of nodes {nodes}: {rows} rows")
        for each in getattr(self, "missing_", ()):
            since = f" since {each['since']}" if each["since"] else ""
            lines.append(f"MISSING: the data of node {each['node']} ({each['why']}{since})")
        return "\n".join(lines)

    def _data_in_words(self) -> str:
        """How many rows were fitted, as far as this process knows."""
        members = getattr(self, "members_", None)
        count = sum(m["rows"] for m in members) if members else getattr(self, "n_samples_", 0)
        return f"{count:,} row{'s' if count > 1 else ''}" if count else ""

    def report(self, path: str | Path, title: str | None = None) -> Path:
        """Write an HTML page with the answer, pictures of it, and how the fit went; it needs nothing else to be read."""
        from dmfvi.report.html import write_report

        return write_report(self, path, title)

    def plot_convergence(self, ax: Any = None) -> Any:
        """Draw change and disagreement by message round; returns the matplotlib Axes."""
        from dmfvi.report.figures import plot_convergence

        check_is_fitted(self)
        return plot_convergence(self, ax)

    def plot_network(self, ax: Any = None) -> Any:
        """Draw the graph of nodes; returns the matplotlib Axes."""
        from dmfvi.report.figures import plot_network

        return plot_network(self, ax)

    @property
    def _ended_well(self) -> bool:
        """Whether the fit did what was asked: it converged, or it made a fixed number of sweeps (``tol=None``)."""
        return bool(getattr(self, "_all_sweeps", False) or self.converged_)

    def _outcome(self) -> str:
        if self.converged_ or not hasattr(self, "history_"):
            return "converged" if self.converged_ else "NOT converged"
        last = {name: self.history_[name][-1] for name in ("change", "disagreement")}
        return (
            f"NOT converged: relative change {last['change']:.1e}, disagreement {last['disagreement']:.1e}, "
            "these numbers are not the posterior"
        )

    def __repr__(self, **options: Any) -> str:
        """As scikit-learn's, and what is wrong with a fit that has not converged."""
        shown = super().__repr__(**options)
        if getattr(self, "converged_", True):
            return str(shown)
        return f"{shown}  # {self._outcome()}"

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's diagram, and the summary of a fit."""
        diagram = str(super()._html_repr())
        if not hasattr(self, "history_"):
            return diagram
        # showing a model must not start a computation
        found = not self._summarised or getattr(self, "_context", None) is None
        return f"{diagram}\n<pre>{escape(self.summary() if found else self._run_words())}</pre>"
