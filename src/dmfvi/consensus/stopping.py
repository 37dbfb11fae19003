"""When nodes stop whose estimates agree only approximately, and therefore converge at different times.

Each message carries ``converged_rounds``, for how many consecutive rounds its sender, and every node it has
(transitively) received messages from, met the stopping criterion. A node that sees this number exceed the network's diameter names
the round in which all stop, far enough ahead for all to learn of it. Rules by which all nodes hold the same estimate
after a sweep need none of this: their nodes decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

#: the round in which all stop, while none is named
NO_STOP = np.iinfo(np.int64).max
#: with lost messages one sweep may look converged by chance
CONVERGED_SWEEPS_WHEN_LATE = 3
#: rounds per hop for which a node's last agreement still counts when the round to stop comes
RECENT_ROUNDS = 10


@stored_as("agreement")
class Agreement(NamedTuple):
    """What a node held when it last met the stopping criterion."""

    belief: Any
    estimate: FloatArray  # of the average target, from which the belief follows
    round: int  # the last one in which it was met


@stored_as("stop-detection")
class StopDetection(NamedTuple):
    """What one node knows of its own convergence and of its neighbours'."""

    sweeps: int = 0  # consecutive ones that met the criterion
    late: bool = False  # a message has been missed at least once
    converged_rounds: int = 0
    neighbours: Mapping[int, int] = MappingProxyType({})  # their converged_rounds as last received
    agreed: Agreement | None = None

    @property
    def settled(self) -> bool:
        """Whether enough sweeps have met the criterion."""
        return self.sweeps >= (CONVERGED_SWEEPS_WHEN_LATE if self.late else 1)

    def received(self, converged_rounds: Mapping[int, int], late: bool) -> StopDetection:
        """After the messages of a round."""
        known = {**self.neighbours, **converged_rounds}
        return self._replace(neighbours=known, late=self.late or late)

    def swept(self, met: bool, now: Agreement) -> StopDetection:
        """After a sweep that met the criterion or not."""
        after = self._replace(sweeps=self.sweeps + 1 if met else 0)
        return after._replace(agreed=now) if after.settled else after

    def disturbed(self) -> StopDetection:
        """Between two sweeps the node has seen that its neighbours disagree."""
        return self._replace(sweeps=0)

    def counted(self, converged: bool, number: int, neighbours: tuple[int, ...]) -> StopDetection:
        """After round ``number``; a neighbour without any message yet has not converged."""
        if not converged:
            return self._replace(converged_rounds=0)
        least = min([self.converged_rounds, *(self.neighbours.get(j, 0) for j in neighbours)])
        agreed = None if self.agreed is None else self.agreed._replace(round=number)
        return self._replace(converged_rounds=1 + least, agreed=agreed)

    def stop_at(self, named: int, number: int, diameter: int) -> int:
        """The round in which all stop: the one that was named, or one far enough ahead for all to know of it."""
        if named == NO_STOP and self.converged_rounds > diameter:
            return number + diameter
        return named

    def recent(self, stop_at: int, diameter: int) -> Agreement | None:
        """What a node ends with that had converged when the round to stop was named, and has not now.

        Late messages and a changed step size may move it in the rounds between; all had agreed before. An agreement of
        long ago does not count: the node was away since, or an observer asked to stop before anybody had converged.
        """
        if self.agreed is None or self.agreed.round < stop_at - RECENT_ROUNDS * (1 + diameter):
            return None
        return self.agreed
