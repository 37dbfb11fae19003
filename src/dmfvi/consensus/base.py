"""The contract of a consensus rule: how neighbours come to agree on an average.

A rule sees flat vectors only. Node i holds a target t_i (V times its statistics); the rule's
estimate at every node tends to the average of all targets, that is, to the sum of all
statistics. Rules are pure: state and inbox in, state and info out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, NamedTuple

from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.tags import stored_as


class LostTrack(RuntimeError):
    """A node has come back from too long ago: what it missed is not known to its neighbours any more."""


@stored_as("local-view", version=2)
@dataclass(frozen=True)
class LocalView:
    """What a node knows of the network: its own neighbours, and facts that all agreed on."""

    node: int
    neighbours: tuple[int, ...]
    n_nodes: int
    diameter: int

    @classmethod
    def of(cls, network: Network, node: int) -> LocalView:
        """The position of ``node`` in ``network``."""
        return cls(node, network.neighbours(node), network.n_nodes, network.diameter)

    @property
    def degree(self) -> int:
        """Number of neighbours."""
        return len(self.neighbours)


class Incoming(NamedTuple):
    """The newest message from one neighbour: its round and its payload."""

    round: int
    payload: FloatArray


class Progress(NamedTuple):
    """What one round tells the node loop."""

    ready: bool  # the estimate may be used: time for a local sweep
    disagreement: float  # bound on the relative distance from the average, as seen from here
    late: bool = False  # a neighbour's newest message was missing this round
    known: float = 1.0  # share of the nodes whose data the present estimate includes


class ConsensusRule(ABC):
    """How the nodes agree; one instance serves all nodes and holds settings only."""

    name: ClassVar[str]
    #: the engine hands each node the sum of all payloads instead of its neighbours' messages
    collective: ClassVar[bool] = False
    #: ``estimate`` is the sum of what the nodes hand in, not the average of V times that
    sums: ClassVar[bool] = False
    #: all nodes hold the same bits after a sweep, sweep in step and decide alike
    bitwise: ClassVar[bool] = False
    #: every message of a phase has one of a few sizes
    fixed_size: ClassVar[bool] = True
    #: keeps its promise when messages are lost or late
    tolerates_loss: ClassVar[bool] = False
    #: numbers at the beginning of a payload that are counts and levels, not sums: they must arrive as they are
    header: ClassVar[int] = 0

    @property
    def in_step(self) -> bool:
        """Whether all nodes end a sweep with the same estimate, so that they converge and stop after the same sweep."""
        return self.collective or self.bitwise

    @property
    def settings(self) -> dict[str, Any]:
        """What the rule was made with, so that ``type(rule)(**rule.settings)`` is the same rule."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def local_view(self, network: Network, node: int) -> LocalView:
        """What a node needs to know of the network."""
        return LocalView.of(network, node)

    def for_network(self, network: Network) -> ConsensusRule:
        """The rule on this network; refuses one on which it cannot keep its promise."""
        return self

    def for_engine(self, reliable: bool, transport: str) -> ConsensusRule:
        """The rule where messages may be lost, or where the engine has one way to sum only."""
        return self

    def for_loss(self, network: Network, loss: float) -> ConsensusRule:
        """The rule where this share of all messages is known to be lost."""
        return self

    def for_model(self, model: Any, belief: Any) -> ConsensusRule:
        """The rule for a model's statistics at its start; one that works on plain sums needs to know nothing of it."""
        return self

    def averages_exactly(self, view: Any) -> bool:
        """Whether one sweep's rounds leave no disagreement but rounding while every message arrives."""
        return self.collective

    def rounding_growth(self, view: Any) -> float:
        """By how much rounding in one round of a sweep can have grown at its end, where sweeps average exactly."""
        return 1.0

    @abstractmethod
    def start(self, view: Any, target: FloatArray) -> Any:
        """State before the first round; ``round`` is what its next message belongs to."""

    @abstractmethod
    def advance(self, state: Any, inbox: Mapping[int, Incoming]) -> tuple[Any, Progress]:
        """One round: use what has arrived."""

    def finish(self, state: Any) -> Any:
        """After the node's last sweep: what it goes on sending helps those who are behind."""
        return state

    def recipients(self, state: Any) -> tuple[int, ...]:
        """The neighbours that need this node's messages."""
        neighbours: tuple[int, ...] = state.view.neighbours
        return neighbours

    @abstractmethod
    def retarget(self, state: Any, target: FloatArray) -> Any:
        """New statistics after a local sweep; called only when a round was ready."""

    @abstractmethod
    def payload(self, state: Any) -> FloatArray:
        """What to send to every neighbour after this round."""

    def sent(self, state: Any, payload: FloatArray) -> Any:
        """After the newest message went out coarser than it is, as ``payload``: what the neighbours go by."""
        return state

    def allowed_error(self, state: Any, disagreement: float) -> float:
        """The rounding that the next message may have on the wire; 0 where it must arrive as it is."""
        return 0.0

    def final_payload(self, state: Any, agreed: FloatArray) -> FloatArray:
        """The payload of a node's last message, with what was agreed on for one that comes too late."""
        return self.payload(state)

    def shortest(self, state: Any) -> int:
        """Numbers in the shortest payload that a neighbour may send."""
        return int(self.payload(state).size)

    def final_estimate(self, payload: FloatArray, like: FloatArray) -> FloatArray | None:
        """The estimate that a final_payload carries, None if it carries none; ``like`` has its size."""
        return None

    @abstractmethod
    def estimate(self, state: Any) -> FloatArray:
        """This node's estimate of the average target."""

    def facts(self, view: Any, size: int) -> dict[str, Any]:
        """What a fit reports of its rule: name, nodes, numbers in a vector, rounds of a sweep without loss."""
        rounds = self.rounds_per_sweep(view)
        return {"rule": self.name, "nodes": view.n_nodes, "numbers": size, "rounds": rounds}

    @abstractmethod
    def rounds_per_sweep(self, view: Any) -> int:
        """Rounds between local sweeps on this network while no message is late."""
