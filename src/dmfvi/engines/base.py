"""The contract of an engine: it runs the node loop for the nodes that this process owns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dmfvi.consensus.base import ConsensusRule
from dmfvi.lifetime import raise_if_interrupted
from dmfvi.network import Network
from dmfvi.node import Job, NodeReport, NodeState
from dmfvi.tags import stored_as

#: nodes of a process up to which the history has a line for each
MOST_NODES_RECORDED = 200


@stored_as("node-round")
class NodeRound(NamedTuple):
    """One node's part of a round."""

    change: float
    disagreement: float
    known: float  # share of the nodes whose data its present sum includes


@stored_as("round-record")
@dataclass(frozen=True)
class RoundRecord:
    """One line of the history: what happened in a round, over the nodes of this process."""

    round: int
    objective: float
    change: float
    disagreement: float
    bytes_sent: int
    limited_steps: int
    swept: bool
    sweeps: int = 0  # of the node that has made most of them
    least_sweeps: int = 0  # of the node that has made fewest
    known: float = (
        1.0  # share of the nodes whose data the sums include, at the node that knows least
    )
    nodes: tuple[NodeRound, ...] = ()  # where a process runs several, and not too many


@dataclass
class Run:
    """What an engine gives back: one belief per node it owns, and how it went."""

    beliefs: list[Any]
    history: list[RoundRecord] = field(default_factory=list)
    converged: bool = False
    vector_size: int = 0  # numbers that a node hands in for one sum

    @property
    def n_sweeps(self) -> int:
        """Sweeps of the node that has made most of them."""
        return self.history[-1].sweeps if self.history else 0

    @property
    def n_rounds(self) -> int:
        """Rounds until the last node stopped."""
        return len(self.history)


#: called after every round with the record and the nodes' beliefs; returning True ends the run
Observer = Callable[[RoundRecord, list[Any]], bool | None]


@dataclass(frozen=True)
class Task:
    """What an engine is asked to run; shards and beliefs are those of the nodes that it owns, in their order."""

    job: Job
    network: Network
    shards: Sequence[Any]
    beliefs: Sequence[Any]  # to begin with
    max_rounds: int
    observer: Observer | None = None


class Engine(Protocol):
    """Runs the node loop for the nodes that ``owned`` names."""

    name: str
    #: how exact sums travel here: "auto", or the only way that the engine has
    transport: str

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the round it was sent for."""

    def owned(self, network: Network) -> Sequence[int]:
        """The nodes that run in this process; all of them in a simulation."""

    def run(self, task: Task) -> Run:
        """All rounds of the task, until the owned nodes have stopped, or its ``max_rounds``."""


def check_links(engine: Engine, rule: ConsensusRule) -> None:
    """Refuse a rule that needs every message where messages may be lost."""
    if not engine.reliable and not rule.tolerates_loss:
        raise ValueError(
            f"consensus {rule.name!r} needs reliable links, those of engine {engine.name!r} may lose messages: "
            "use the default, Federation(network, links=...), or exact-sum by flood or tree"
        )


def record_round(
    job: Job,
    number: int,
    nodes: Sequence[NodeState],
    reports: Sequence[NodeReport | None],
    bytes_sent: int,
) -> RoundRecord:
    """The line of the history that these nodes give."""
    raise_if_interrupted()
    if len(nodes) == 1:  # of a network, a round is short
        return _of_one(number, nodes[0], reports[0], bytes_sent)
    acted = [report for report in reports if report is not None]
    return RoundRecord(
        round=number,
        objective=nodes[0].objective,
        change=max(node.change for node in nodes),
        disagreement=max((report.disagreement for report in acted), default=0.0),
        bytes_sent=bytes_sent,
        limited_steps=sum(report.limited for report in acted),
        swept=any(report.swept for report in acted),
        sweeps=max(node.sweeps for node in nodes),
        least_sweeps=min(node.sweeps for node in nodes),
        known=min((report.known for report in acted), default=1.0),
        nodes=_by_node(nodes, reports),
    )


def _of_one(
    number: int, node: NodeState, report: NodeReport | None, bytes_sent: int
) -> RoundRecord:
    acted = NodeReport(False, False, 0.0) if report is None else report
    return RoundRecord(
        number,
        node.objective,
        node.change,
        acted.disagreement,
        bytes_sent,
        int(acted.limited),
        acted.swept,
        node.sweeps,
        node.sweeps,
        acted.known,
    )


def _by_node(
    nodes: Sequence[NodeState], reports: Sequence[NodeReport | None]
) -> tuple[NodeRound, ...]:
    if not 1 < len(nodes) <= MOST_NODES_RECORDED:
        return ()
    return tuple(
        NodeRound(node.change, float("nan"), float("nan"))
        if report is None
        else NodeRound(node.change, report.disagreement, report.known)
        for node, report in zip(nodes, reports, strict=True)
    )
