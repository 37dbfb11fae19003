"""What a file keeps of a fitted estimator."""

from __future__ import annotations

from typing import Any, ClassVar

#: of every run of nodes
OF_A_RUN = ("history_", "lower_bound_", "n_rounds_", "n_start_rounds_", "converged_")


class Kept:
    """The attributes that ``_kept`` names, in a class or in its bases, are written; the rest follows from them."""

    _kept: ClassVar[tuple[str, ...]] = ("n_features_in_", "feature_names_in_")

    def _saved(self) -> dict[str, Any]:
        """What to write, by the attributes' names without underscores, and which node's posterior is shown."""
        found = {name: getattr(self, name) for name in self._all_kept() if hasattr(self, name)}
        return {name.strip("_"): value for name, value in found.items()} | {"node": self._node()}

    def _restore(self, content: dict[str, Any]) -> None:
        """Inverse of ``_saved``; subclasses rebuild what follows."""
        for name in self._all_kept():
            if name.strip("_") in content:
                setattr(self, name, content[name.strip("_")])

    def _node(self) -> int:
        """The node whose posterior is shown, not 0 after ``at_node``."""
        shown: Any = self.posterior_  # type: ignore[attr-defined]
        nodes: list[Any] = self.node_posteriors_  # type: ignore[attr-defined]
        return next((i for i, q in enumerate(nodes) if q is shown), 0)

    def _all_kept(self) -> list[str]:
        return [name for made in type(self).__mro__ for name in vars(made).get("_kept", ())]
