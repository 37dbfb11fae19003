"""Federation: a network, how its nodes agree, and where they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmfvi.consensus.base import ConsensusRule
from dmfvi.engines.links import Links
from dmfvi.network import Network
from dmfvi.tags import stored_as

if TYPE_CHECKING:
    from dmfvi.engines.base import Engine


@stored_as("federation")
@dataclass(frozen=True)
class Federation:
    """A network, its consensus rule and its engine: what an estimator's ``network=`` takes besides a ``Network``.

    Parameters
    ----------
    network : Network
        The graph of nodes.
    consensus : str or ConsensusRule
        How neighbours agree on sums: "auto" is the estimator's own choice ("exact-sum" for nearly all), other names
        are in ``dmfvi.consensus.RULES``; for a rule with settings pass ``dmfvi.consensus.make(name, network, ...)``.
    engine : str or Engine
        "local": all nodes in this process. "mpi": one node a rank, and ``fit`` takes the rank's own data. Other names
        are in ``dmfvi.engines.ENGINES``; an engine that was made already is used as it is.
    links : Links or None
        Simulated loss, delay and pauses of the local engine.
    n_jobs : int or None
        Threads over the nodes of the local engine.

    Examples
    --------
    >>> from dmfvi import Federation, Links, Network
    >>> lossy = Federation(Network.ring(5), links=Links(loss=0.3))
    """

    network: Network
    consensus: str | ConsensusRule = "auto"
    engine: str | Engine = "local"
    links: Links | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.network, Network):
            raise TypeError(
                f"network must be a dmfvi.Network, received {type(self.network).__name__}: "
                "make one with Network.ring(5) and the like, or wrap a graph with Network.from_networkx"
            )

    @classmethod
    def of(cls, given: Network | Federation | None) -> Federation:
        """From what a user passes as ``network``; None is one machine with all data."""
        if isinstance(given, Federation):
            return given
        if given is None:
            return cls(Network.complete(1))
        if not isinstance(given, Network):
            raise TypeError(
                f"network must be a dmfvi.Network, a dmfvi.Federation or None, received {type(given).__name__}: "
                "make one with Network.ring(5) and the like, or wrap a graph with Network.from_networkx"
            )
        return cls(given)

    def __deepcopy__(self, memo: object) -> Federation:
        """Itself: engines and rules that were made already are shared by copies of an estimator."""
        return self

    @property
    def name(self) -> str:
        """The network's."""
        return self.network.name

    def __repr__(self) -> str:
        parts = [repr(self.network)]
        for name, usual in (
            ("consensus", "auto"),
            ("engine", "local"),
            ("links", None),
            ("n_jobs", None),
        ):
            value = getattr(self, name)
            if value != usual:
                parts.append(f"{name}={value!r}")
        return f"Federation({', '.join(parts)})"
