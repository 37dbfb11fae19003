"""ExactSum: the sum of all nodes' vectors, the same bits at every node, on every connected graph.

Vectors are added as integers (``fixed_point``), so the sum does not depend on the way it travels:

    flood        every vector to everyone: as many rounds as the network's diameter, which nothing can beat
    tree         sums up a breadth-first tree, the result down: twice its height, far fewer bytes on large networks
    all-reduce   digits added by the engine's own reduction (MPI)

One sweep is one sum. A node that has the result of sum t goes on with sum t + 1; nobody can finish that without its
vector, so neighbours are at most one sum apart, and one that is behind is handed the result. Duplicates and late
messages are harmless, lost ones are sent again: no message needs to be delivered reliably.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from dmfvi.consensus.allreduce import EVERYONE
from dmfvi.consensus.base import ConsensusRule, Incoming, LocalView, LostTrack, Progress
from dmfvi.consensus.fixed_point import (
    MOST_ADDED,
    Digits,
    decode,
    encode,
    normalised,
    total,
    total_of,
)
from dmfvi.consensus.sum_cost import cheapest, cost
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.tags import stored_as

Transport = Literal["auto", "flood", "tree", "all-reduce"]
#: bits of a set of nodes in one number of a message
MASK_BITS = 48
#: numbers in front of a message: sum, whether the last result is in it, vectors, first digit, digits
HEAD = 5
#: rounds until an answer to a message can be there
ANSWER_ROUNDS = 2
NOBODY: frozenset[int] = frozenset()


@stored_as("tree-view", version=2)
@dataclass(frozen=True)
class TreeView(LocalView):
    """A node's position in the network and in its breadth-first tree."""

    even: bool  # all nodes are equally far from the node that is furthest from them
    parent: int | None  # in the breadth-first tree around a centre; None for its root
    children: tuple[int, ...]
    radius: int  # height of that tree
    n_edges: int
    n_inner: int  # nodes that have children in the tree

    @classmethod
    def of(cls, network: Network, node: int) -> TreeView:
        parents, neighbours = network.tree, network.neighbours(node)
        return cls(
            node,
            neighbours,
            network.n_nodes,
            network.diameter,
            network.radius == network.diameter,
            None if parents[node] == node else parents[node],
            tuple(j for j in neighbours if parents[j] == node),
            network.radius,
            network.n_edges,
            network.n_inner,
        )


@stored_as("exact-sum-parcel")
class Parcel(NamedTuple):
    """A message, read: the sender's sum, the result before it, what the sender has, and vectors or a partial sum."""

    number: int
    previous: FloatArray | None
    has: frozenset[int]
    vectors: Mapping[int, FloatArray]
    partial: Digits | None


@stored_as("exact-sum-state")
class SumState(NamedTuple):
    """One node's side of sum ``number``."""

    view: TreeView
    transport: str
    own: FloatArray
    number: int = 0
    vectors: Mapping[int, FloatArray] = MappingProxyType({})  # flood: by node, own included
    partials: Mapping[int, Digits] = MappingProxyType({})  # tree: by child
    result: FloatArray | None = None
    previous: FloatArray | None = None  # the result before this sum
    ahead: Mapping[int, Any] = MappingProxyType({})  # neighbour -> its parcel of the next sum
    has: Mapping[int, frozenset[int]] = MappingProxyType({})  # neighbour -> vectors that it has
    numbers: Mapping[int, int] = MappingProxyType({})  # neighbour -> its sum
    sent: frozenset[int] = frozenset()  # vectors (flood), or this node (tree), that have been sent
    first: bool = True  # no message of this sum has been sent yet
    answered: int = 0  # round in which the last result was sent, or this sum began
    lossy: bool = False  # a message was missed: send again until it is known to have arrived
    finished: bool = False
    window: tuple[int, int] | None = None  # all-reduce: agreed first and last digit
    encoded: Digits | None = None  # all-reduce: the own vector, for both of its rounds
    round: int = 0


class ExactSum(ConsensusRule):
    """The exact sum in every sweep, the same bits at every node.

    Parameters
    ----------
    transport : {"auto", "flood", "tree", "all-reduce"}, default="auto"
        How the sum travels; "auto" is the cheaper of "flood" and "tree" for the network and the length of the vectors
        (``sum_cost``).
    resend : bool, default=False
        Send again from the beginning, not only once a message was missed; for links that may lose some.
    """

    name = "exact-sum"
    sums = True
    bitwise = True
    tolerates_loss = True
    fixed_size = False

    def __init__(self, transport: Transport = "auto", resend: bool = False) -> None:
        known = ("auto", "flood", "tree", "all-reduce")
        if transport not in known:
            raise ValueError(f"transport must be one of {list(known)}, received {transport!r}")
        self.transport = transport
        self._asked = transport != "auto"  # for this transport and no other
        self.resend = resend
        self._loss = 0.0
        self._last_sum: tuple[list[FloatArray], FloatArray] | None = None
        self.collective = transport == "all-reduce"  # type: ignore[misc]
        self.tolerates_loss = not self.collective  # type: ignore[misc]

    def for_loss(self, network: Network, loss: float) -> ConsensusRule:
        made = self._by(self.transport, self.resend)
        made._loss = loss
        return made

    def for_engine(self, reliable: bool, transport: str) -> ConsensusRule:
        if self._asked and transport not in ("auto", self.transport):
            raise ValueError(
                f"exact-sum by {self.transport!r} was asked for, this engine adds by {transport!r} only: drop transport, "
                f"or write transport={transport!r}"
            )
        way = self.transport if transport == "auto" else transport
        return self._by(way, self.resend or not reliable)

    def _by(self, way: str, resend: bool) -> ExactSum:
        made = ExactSum(way, resend)  # type: ignore[arg-type]
        made._asked, made._loss = self._asked, self._loss
        return made

    def for_model(self, model: Any, belief: Any) -> ConsensusRule:
        if not model.beliefs_alike:
            raise ValueError(
                f"consensus 'exact-sum' needs beliefs that follow from the sum alone, those of this {type(model).__name__} "
                "differ between nodes (noise='per_node', for example): use consensus='bregman-admm'"
            )
        return self

    def local_view(self, network: Network, node: int) -> TreeView:
        return TreeView.of(network, node)

    def averages_exactly(self, view: TreeView) -> bool:
        return True

    def start(self, view: TreeView, target: FloatArray) -> SumState:
        way = self._way(view, len(target))
        return _begun(SumState(view, way, target, lossy=self.resend), target)

    def advance(self, state: SumState, inbox: Mapping[int, Incoming]) -> tuple[SumState, Progress]:
        if state.transport == "all-reduce":
            return _reduced(state, inbox)
        late = [j for j in self.recipients(state) if j not in inbox]
        state = _after_sending(state, bool(late))
        for sender, message in inbox.items():
            parcel = _read(message.payload, len(state.own), state.view.n_nodes)
            if parcel is not None:
                state = _received(state, sender, parcel)
        if state.result is None:
            state = state._replace(result=self._result(state))
        ready = state.result is not None
        held = len(state.vectors) + len(state.partials)  # of a tree: itself and branches
        known = 1.0 if ready else held / state.view.n_nodes
        return state, Progress(ready, 0.0, late=bool(late), known=known)

    def _result(self, state: SumState) -> FloatArray | None:
        """The sum, if this node can know it; nodes of one process that hold the same vectors add them once."""
        if state.transport == "tree":
            if state.view.parent is None and len(state.partials) == len(state.view.children):
                return decode(total([encode(state.own), *state.partials.values()]))
            return None
        if len(state.vectors) < state.view.n_nodes:
            return None
        vectors = [state.vectors[node] for node in sorted(state.vectors)]
        last = self._last_sum  # read once: another thread may replace it
        if last is not None and _same_bits(vectors, last[0]):
            return last[1].copy()
        result = decode(total_of(vectors))
        # copies: a model may reuse the arrays that it hands in and is handed
        self._last_sum = [vector.copy() for vector in vectors], result.copy()
        return result

    def retarget(self, state: SumState, target: FloatArray) -> SumState:
        return _begun(
            state._replace(
                number=state.number + 1,
                previous=state.result,
                result=None,
                first=True,
                answered=state.round,
                window=None,
            ),
            target,
        )

    def payload(self, state: SumState) -> FloatArray:
        if state.transport == "all-reduce":
            return _digits_or_window(state)
        return _written(state)

    def finish(self, state: SumState) -> SumState:
        return state._replace(finished=True)

    def recipients(self, state: SumState) -> tuple[int, ...]:
        view = state.view
        if state.transport != "tree":
            return view.neighbours
        return view.children if view.parent is None else (view.parent, *view.children)

    def estimate(self, state: SumState) -> FloatArray:
        return state.own if state.result is None else state.result

    def facts(self, view: TreeView, size: int) -> dict[str, Any]:
        """Also the transport, and what a sum costs by it and by the other in the cost model."""
        way = self._way(view, size)
        found = super().facts(view, size) | {"rounds": _rounds(way, view), "transport": way}
        if way == "all-reduce":
            return found
        priced = {each: cost(each, view, size, self._loss) for each in ("flood", "tree")}
        return found | {"cost": {each: price._asdict() for each, price in priced.items()}}

    def rounds_per_sweep(self, view: TreeView) -> int:
        ways = ("flood", "tree") if self.transport == "auto" else (self.transport,)
        return max(_rounds(way, view) for way in ways)

    def _way(self, view: TreeView, length: int) -> str:
        return cheapest(view, length, self._loss) if self.transport == "auto" else self.transport


def _rounds(way: str, view: TreeView) -> int:
    return {"all-reduce": 2, "tree": 2 * view.radius}.get(way, view.diameter) or 1


# -- one sum --------------------------------------------------------------------------------------


def _begun(state: SumState, target: FloatArray) -> SumState:
    """The next sum, with what neighbours that are ahead have sent of it."""
    state = state._replace(
        own=target,
        encoded=encode(target) if state.transport == "all-reduce" else None,
        vectors={state.view.node: target},
        partials={},
        has={},
        sent=frozenset(),
    )
    ahead, state = state.ahead, state._replace(ahead={})
    for sender, parcel in ahead.items():
        state = _received(state, sender, parcel)
    return state


def _received(state: SumState, sender: int, parcel: Parcel) -> SumState:
    numbers = state.numbers
    if numbers.get(sender) != parcel.number:
        numbers = {**numbers, sender: parcel.number}
    if parcel.number == state.number + 1:  # the sender has the result of this sum
        return state._replace(
            numbers=numbers,
            ahead={**state.ahead, sender: parcel},
            result=parcel.previous if state.result is None else state.result,
        )
    if parcel.number > state.number:
        raise LostTrack(
            f"node {state.view.node} is at sum {state.number}, its neighbour {sender} at {parcel.number}: the results between "
            "them are gone, begin the fit anew"
        )
    if parcel.number != state.number:
        return state._replace(numbers=numbers)
    if state.transport == "tree":
        partials = state.partials
        if parcel.partial is not None and sender in state.view.children:
            partials = {**partials, sender: parcel.partial}
        return state._replace(numbers=numbers, partials=partials)
    return state._replace(
        numbers=numbers,
        vectors={**parcel.vectors, **state.vectors},
        has={**state.has, sender: state.has.get(sender, NOBODY) | parcel.has},
    )


def _same_bits(first: list[FloatArray], second: list[FloatArray]) -> bool:
    """Whether the vectors are the same: -0 is not 0 here."""
    return len(first) == len(second) and all(
        np.array_equal(a.view(np.int64), b.view(np.int64))
        for a, b in zip(first, second, strict=True)
    )


def _after_sending(state: SumState, missed: bool) -> SumState:
    """The next round: what the last message contained need not be sent again while nothing is lost."""
    number = state.round + 1
    if state.lossy:  # what has been sent is of no use: what has arrived counts
        return state._replace(round=number)
    sent = state.sent | frozenset(_vectors_to_send(state))
    if _sends_partial(state):
        sent = sent | {state.view.node}
    answered = state.round if _needs_previous(state) else state.answered
    return state._replace(sent=sent, first=False, answered=answered, round=number, lossy=missed)


# -- messages -------------------------------------------------------------------------------------


def _vectors_to_send(state: SumState) -> list[int]:
    """Vectors that some neighbour may lack: new ones, and after a loss all that are not known to have arrived."""
    if state.transport == "tree":
        return []
    if not state.lossy:
        return sorted(set(state.vectors) - state.sent)
    number, numbers, has = state.number, state.numbers, state.has
    behind = [has.get(j, NOBODY) for j in state.view.neighbours if numbers.get(j, number) <= number]
    everywhere = behind[0].intersection(*behind[1:]) if behind else state.vectors.keys()
    return sorted(state.vectors.keys() - everywhere)


def _sends_partial(state: SumState) -> bool:
    """Whether the next message has the sum over this node's part of the tree, for its parent."""
    view = state.view
    if state.transport != "tree" or view.parent is None or len(state.partials) < len(view.children):
        return False
    return view.node not in state.sent or state.lossy


def _partial(state: SumState) -> Digits | FloatArray | None:
    """That sum: a leaf's is its own vector."""
    if not _sends_partial(state):
        return None
    if not state.view.children:
        return state.own
    found = total([encode(state.own), *state.partials.values()])
    return found if state.view.n_nodes <= MOST_ADDED else normalised(found)


def _needs_previous(state: SumState) -> bool:
    """Whether a neighbour may still wait for the last result."""
    if state.previous is None:
        return False
    if state.finished:
        return True
    if state.first and not state.lossy:
        # nodes that flood from equally far all have the result in the same round
        return bool(state.view.children) if state.transport == "tree" else not state.view.even
    if not state.lossy and state.round < state.answered + ANSWER_ROUNDS:
        return False
    waiting = state.view.children if state.transport == "tree" else state.view.neighbours
    return any(state.numbers.get(j, 0) < state.number for j in waiting)


def _written(state: SumState) -> FloatArray:
    previous = state.previous if _needs_previous(state) else None
    chosen = _vectors_to_send(state)
    partial = _partial(state)
    parts: list[Any] = [] if previous is None else [previous]
    low, n_digits = 0, 0
    if isinstance(partial, Digits):
        low, n_digits = partial.low, len(partial.digits)
        parts.append(partial.digits.ravel())
    elif partial is not None:
        n_digits = -1
        parts.append(partial)
    head = [state.number, float(previous is not None), len(chosen), low, n_digits]
    if state.transport == "tree" and not parts:
        return np.array(head, dtype=np.float64)
    mask = [] if state.transport == "tree" else _mask(state.vectors, state.view.n_nodes)
    return np.concatenate([head, mask, chosen, *parts, *(state.vectors[i] for i in chosen)])


def _read(payload: FloatArray, size: int, n_nodes: int) -> Parcel | None:
    """A message, or None for one that no node of this network can have sent."""
    if len(payload) < HEAD:
        return None
    number, with_previous, count, low, n_digits = map(int, payload[:HEAD].tolist())
    if min(number, with_previous, count) < 0 or n_digits < -1:
        return None
    if len(payload) == HEAD and not (with_previous or count or n_digits):  # of a node that waits
        return Parcel(number, None, frozenset(), {}, None)
    digits = size * (1 if n_digits == -1 else n_digits)
    body = count * (size + 1) + (size if with_previous else 0) + digits
    words = len(payload) - HEAD - body
    if words not in (0, -(-n_nodes // MASK_BITS)) and n_nodes:
        return None
    at = HEAD + max(words, 0)
    has = _members(payload[HEAD:at])
    ids = [int(v) for v in payload[at : at + count].tolist()]
    at += count
    previous = payload[at : at + size].copy() if with_previous else None
    at += size if with_previous else 0
    partial = None
    if n_digits == -1:
        partial = encode(payload[at : at + size])
    elif n_digits:
        partial = Digits(low, payload[at : at + digits].reshape(n_digits, size))
    at += digits
    # parts of the message itself: nobody writes into one
    vectors = {i: payload[at + k * size : at + (k + 1) * size] for k, i in enumerate(ids)}
    if n_nodes and not all(0 <= i < n_nodes for i in ids):
        return None
    return Parcel(number, previous, has, vectors, partial)


def _mask(nodes: Mapping[int, Any], n_nodes: int) -> list[float]:
    words = [0] * -(-n_nodes // MASK_BITS)
    for node in nodes:
        words[node // MASK_BITS] |= 1 << (node % MASK_BITS)
    return [float(word) for word in words]


def _members(words: FloatArray) -> frozenset[int]:
    members = []
    for k, word in enumerate(words.tolist()):
        bits = int(word)
        while bits:
            members.append(MASK_BITS * k + (bits & -bits).bit_length() - 1)
            bits &= bits - 1
    return frozenset(members)


# -- by the engine's own reduction ----------------------------------------------------------------

#: digits that any double may have, counted from the lowest
GRID_LOW, GRID_SIZE = -36, 70


def _digits_or_window(state: SumState) -> FloatArray:
    """First which digits are used at all, then the digits: doubles add whole numbers below 2^53 exactly."""
    exact = encode(state.own) if state.encoded is None else state.encoded
    if state.window is None:
        used = np.zeros(GRID_SIZE)
        used[exact.low - GRID_LOW] = used[exact.low + len(exact.digits) - 1 - GRID_LOW] = 1.0
        return used
    low, high = state.window
    digits = np.zeros((high - low + 1, exact.size))
    digits[exact.low - low : exact.low - low + len(exact.digits)] = exact.digits
    return digits.ravel()


def _reduced(state: SumState, inbox: Mapping[int, Incoming]) -> tuple[SumState, Progress]:
    if EVERYONE not in inbox:
        raise RuntimeError(
            "exact-sum by all-reduce received no total: it needs an engine with a reduction (local, mpi)"
        )
    state, summed = state._replace(round=state.round + 1), inbox[EVERYONE].payload
    if state.window is None:
        used = np.flatnonzero(summed)
        window = int(used[0]) + GRID_LOW, int(used[-1]) + GRID_LOW
        return state._replace(window=window), Progress(False, 0.0)
    low, high = state.window
    digits = Digits(low, summed.reshape(high - low + 1, -1))
    return state._replace(result=decode(digits)), Progress(True, 0.0)
