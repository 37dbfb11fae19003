"""Epochs of a node on a network: begin a fit together with all members, notice when they change, finish together.

Whatever waits is a generator that yields how many seconds to wait for a frame at most: ``drive`` waits for real, a
simulation does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from dmfvi.engines.net.endpoint import REPEATS, Endpoint
from dmfvi.engines.net.membership import Share, View
from dmfvi.network import Network

#: seconds to wait at most before something else may be looked at, and at least: less may not move a clock at all
LONGEST_WAIT, SHORTEST_WAIT = 0.25, 1e-5
#: times settle that a fit waits for the link to a neighbour that is a member already
LINKS_COMING = 5.0


Result = TypeVar("Result")
#: yields seconds to wait for a frame at most
Steps = Generator[float, None, Result]


class MembershipChanged(Exception):
    """A node has joined or left, or has other data: what was agreed on so far belongs to another set of nodes."""


class NetworkNode(Endpoint):
    """One node of a network: its endpoint, and the epochs that it takes part in."""

    def gathering(self, wait_for: int, timeout: float, again: bool = False) -> Steps[Network]:
        """Wait for enough members, and until the membership has not changed for a while; then begin an epoch together.

        again : members have been met before: where all others have left since, this node may go on alone.
        """
        deadline = self.clock() + timeout
        while True:
            yield from self._settling(wait_for, timeout, deadline, again)
            self.begin()
            self.took_part = self.took_part or len(self.members) > 1
            self._see(self.view.begun(self.epoch))
            if (yield from self._confirming(max(timeout, 2.0 * self.timing.silence))):
                return self.view.network()
            # enough members were there; from now on as after any change
            wait_for, again, deadline = 2, True, self.clock() + timeout

    def _settling(self, wait_for: int, timeout: float, deadline: float, again: bool) -> Steps[None]:
        """Until enough members are there and the membership has not changed for a while."""
        view = None
        while True:
            if view is not self.view:
                view = self.view
                here, received = view.component, view.own.receives_from
                one_way = any(j in here and j not in received for j in self.neighbours)
                # a member that is a neighbour will connect any moment, and its link would restart the fit
                settle = (LINKS_COMING if one_way else 1.0) * self.timing.settle
                enough = self._enough(wait_for) or (again and self._all_others_left)
            now = self.clock()
            settled = now >= self.changed_at + settle
            if settled and enough:
                return
            if not enough and now >= deadline:
                raise TimeoutError(self._met_too_few(wait_for, timeout))
            yield self.changed_at + settle - now if enough else deadline - now

    def _confirming(self, timeout: float) -> Steps[bool]:
        """Until every member has signed that it takes part in this epoch; False where the members change meanwhile.

        An entry alone may be an old one of a node that has gone, repeated by a neighbour.
        """
        deadline = self.clock() + timeout
        while self.view.epoch == self.epoch:
            view, absent = self.view, self.view.unconfirmed(self.members, self.epoch)
            if not absent:
                return True
            while self.view is view:
                now = self.clock()
                if now >= deadline:
                    raise TimeoutError(self._not_confirmed(absent, timeout))
                yield deadline - now
        return False

    def _not_confirmed(self, absent: list[int], timeout: float) -> str:
        entries = self.view.entries
        named = "; ".join(
            f"node {node}, which {[n for n in self.members if node in entries[n].receives_from]} claim to receive from"
            for node in absent
        )
        return (
            f"node {self.node} waited {timeout:g} seconds for members to begin the fit, and has no sign of {named}. "
            "Stop those neighbours or restart the nodes that are named, and run again"
        )

    def _enough(self, wait_for: int) -> bool:
        """Whether so many are here, with those who have left after they had signed the epoch of a fit with others.

        They are not coming back, and the result names them. A node that left before does not count: no fit has had its data.
        """
        here = len(self.view.component)
        left = sum(entry.left_a_fit for entry in self.view.entries.values())
        return here >= wait_for or (here > 1 and here + left >= wait_for)

    @property
    def _all_others_left(self) -> bool:
        others = [entry for node, entry in self.view.entries.items() if node != self.node]
        return all(entry.left for entry in others)

    def _met_too_few(self, wait_for: int, timeout: float) -> str:
        others = sorted(set(self.differences) & set(self.neighbours))
        left = sorted(node for node, entry in self.view.entries.items() if entry.left)
        gone = f"; have left: {left}" if left else ""
        silent = sorted(
            set(self.neighbours) - set(self.view.own.receives_from) - set(others) - set(left)
        )
        unheard = f"; nothing received from {silent}" if silent else ""
        of_others = "".join(f"; {self.differences[peer]}" for peer in others)
        return (
            f"node {self.node} waited {timeout:g} seconds for {wait_for} nodes and met "
            f"{list(self.view.component)}{gone}{unheard}{of_others}; refused frames: "
            f"{dict(self.counts.refused) or 'none'}. Start the others, check addresses, "
            "certificates and that all have the same [model] and columns, or lower wait_for"
        )

    def begin(self, view: View | None = None, phase: int = 0) -> None:
        """Phases and messages from now on are those of the present members, or of those in ``view``."""
        if view is not None:
            self.view = view
            self.merged.clear()
            self.received_at = dict.fromkeys(view.own.receives_from, self.clock())
        self.epoch = self.view.epoch
        self.members = self.view.members
        self.phase = phase
        self.mail.clear()
        self.references.clear()
        self.finals.clear()
        self.helped_at.clear()
        self.sizes.clear()

    def check_epoch(self) -> None:
        """Raise when what has been agreed on so far is no longer of use.

        Where a member that is still there has finished the epoch, the others can finish it too, whoever has gone since:
        it hands them the last sums.
        """
        if self.view.epoch == self.epoch:
            return
        here = self.view.component
        if self._only_lost() and any(self.view.done([node], self.epoch) for node in here):
            return
        raise MembershipChanged(f"members are now {list(here)}")

    def _only_lost(self) -> bool:
        """Whether all that are here now were members of the epoch, with the data that they had in it."""
        return self.view.members.items() <= self.members.items()

    def finishing(self) -> Steps[None]:
        """Announce that this node is done, and answer the others until they are; lost nodes may come back."""
        self._see(self.view.finished(self.epoch))
        deadline = self.clock() + self.timing.linger
        done, view = self._all_are_done, None
        while not done and self.clock() < deadline:
            yield deadline - self.clock()
            if self.view is view:
                continue
            if not self._only_lost() and not self.finished_and_gone(self.epoch, self.members):
                raise MembershipChanged(f"members are now {list(self.view.component)}")
            done, view = self._all_are_done, self.view
        for _ in range(REPEATS):  # for nodes that have not received yet that all are done
            self.say_view()
            yield from self.resting(0.1 * self.timing.heartbeat)

    def resting(self, seconds: float) -> Steps[None]:
        """So long, whatever arrives meanwhile."""
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0.0:
            yield left

    @property
    def _all_are_done(self) -> bool:
        """Whether every member is, and nobody who has been lost could still take part."""
        if not self.view.done(self.members, self.epoch):
            return False
        return set(self.view.lost) <= set(self.members)

    def finished_and_gone(self, epoch: int, members: dict[int, Share]) -> list[int]:
        """Members of an epoch that finished it and are gone: their result includes this node's data."""
        here = self.view.component
        return [n for n in members if n not in here and self.view.done([n], epoch)]


def drive(
    steps: Steps[Result], listen: Callable[[float], object], watch: Callable[[], None] | None = None
) -> Result:
    """Take steps to their end, waiting for frames in between; ``watch`` is called at least four times a second."""
    while True:
        try:
            seconds = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        listen(max(SHORTEST_WAIT, min(seconds, LONGEST_WAIT)))
        if watch is not None:
            watch()
