"""A node's life on a network: meet, fit, finish together; begin anew when the members or their data change.

No result without a name: what a fit gave is kept with the members whose data are in it, and with those who were met
and are not in it. A node does not end alone unless the others have announced that they leave.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from dmfvi.engines.net.epochs import MembershipChanged, NetworkNode, Result, Steps
from dmfvi.engines.net.membership import Share
from dmfvi.network import Network

logger = logging.getLogger(__name__)

#: states of a node
JOINING, FITTING, WAITING = "joining", "agreeing on a start", "waiting for others"


@dataclass(frozen=True)
class Missing:
    """A node whose data are not in a result."""

    node: int
    why: str  # "left", "silent" or "never met"
    since: float | None = None  # by the endpoint's clock, when it left or fell silent


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What a fit gave, whose data are in it, and whose are not."""

    result: Result
    members: dict[int, Share]
    epoch: int
    missing: list[Missing] = field(default_factory=list)


@dataclass(frozen=True)
class Lifecycle(Generic[Result]):
    """The steps of one node from its first frame to its last.

    fit : steps of a fit with the present members; raises ``MembershipChanged`` when it is of no use any more.
    keep : what to do with a result as soon as there is one.
    wait_for : members to wait for before the first fit; who left after it had signed the epoch of a fit with others counts.
    wait_seconds : how long.
    on_state : receives the state of the node.
    """

    node: NetworkNode
    fit: Callable[[Network], Steps[Result]]
    keep: Callable[[Outcome[Result]], None]
    wait_for: int
    wait_seconds: float
    on_state: Callable[[str], None] = lambda state: None

    def steps(self) -> Steps[Outcome[Result]]:
        """Fit with who is there until nobody comes or goes any more."""
        node = self.node
        outcome: Outcome[Result] | None = None
        wait_for, again = self.wait_for, False
        while True:
            epoch, members = node.epoch, node.members
            try:
                self.on_state(JOINING)
                network = yield from node.gathering(wait_for, self.wait_seconds, again)
                gone = node.finished_and_gone(epoch, members)
                if gone and outcome is not None:
                    return self._named(
                        outcome
                    )  # theirs is the same: all that is left is to go home too
                if gone:
                    raise TimeoutError(
                        f"nodes {gone} have finished and gone while node {node.node} was away, after waiting for "
                        "[timing] linger seconds: take the model from one of them, or run all again"
                    )
                outcome = None
                logger.info("node %d: fit begins with %s", node.node, sorted(node.members))
                self.on_state(FITTING)
                fitted = yield from self.fit(network)
                outcome = self._named(Outcome(fitted, node.members, node.epoch))
                self.keep(outcome)
                self.on_state(WAITING)
                yield from node.finishing()
                return self._named(outcome)
            except MembershipChanged as reason:
                logger.info("node %d: fit begins anew: %s", node.node, reason)
                wait_for, again = 2, True  # go on with who is there, but not alone by accident

    def _named(self, outcome: Outcome[Result]) -> Outcome[Result]:
        """With those who were met, or should have been, and whose data are not in the result."""
        view = self.node.view
        missing = []
        for node in sorted(view.known - set(outcome.members)):
            entry = view.entries.get(node)
            why = "never met" if entry is None else "left" if entry.left else "silent"
            missing.append(Missing(node, why, self.node.gone_since.get(node)))
        return Outcome(outcome.result, outcome.members, outcome.epoch, missing)
