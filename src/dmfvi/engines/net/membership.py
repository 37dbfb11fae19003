"""Membership: a link-state view that neighbours flood, and the network it implies.

Every node owns one entry: a version that only grows, and the neighbours it receives frames from. A link works while both ends
list each other; a node's component is what it can reach over working links. All nodes of a component hold the same
entries, so they agree on the network, the number of nodes and an epoch without a coordinator. A partition is two
components, each with an epoch of its own; when it heals they are one again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.engines.net.frames import Malformed
from dmfvi.network import Network

#: bounds of what a view may claim
MOST_NODES, MOST_NEIGHBOURS = 4096, 1024
#: ids fit a frame's header, versions leave space to exceed them
LARGEST_ID, LARGEST_VERSION, LARGEST_EPOCH = 2**32, 2**53, 2**63
#: numbers of an entry before its neighbours
FIELDS = 5


@dataclass(frozen=True)
class Entry:
    """One node's entry in the view."""

    version: int
    hears: tuple[int, ...]
    news: int = 0  # grows with what is no change of membership
    done_in: int = 0  # epoch in which it has finished

    def newer_than(self, other: Entry | None) -> bool:
        """Whether it has a later version, or the same version and a later news counter."""
        return other is None or (self.version, self.news) > (other.version, other.news)


@dataclass(frozen=True)
class View:
    """All entries that a node knows of."""

    node: int
    entries: dict[int, Entry] = field(default_factory=dict)

    @classmethod
    def first(cls, node: int, version: int) -> View:
        """The view of a node that has received nothing yet."""
        return cls(node, {node: Entry(version, ())})

    @property
    def own(self) -> Entry:
        """This node's entry."""
        return self.entries[self.node]

    def hearing(self, neighbours: set[int]) -> View:
        """The view after the set of neighbours that frames arrive from has changed."""
        hears = tuple(sorted(neighbours))
        if hears == self.own.hears:
            return self
        return self._with(replace(self.own, version=self.own.version + 1, hears=hears))

    def renewed(self) -> View:
        """This node's entry with a later version, which begins another epoch."""
        return self._with(replace(self.own, version=self.own.version + 1))

    def finished(self, epoch: int) -> View:
        """This node is done in that epoch."""
        return self._with(replace(self.own, news=self.own.news + 1, done_in=epoch))

    def merged(self, others: dict[int, Entry]) -> View:
        """With a neighbour's entries; of each node the newest one is kept."""
        entries = dict(self.entries)
        for node, entry in others.items():
            if node == self.node:
                continue
            if entry.newer_than(entries.get(node)) and (
                node in entries or len(entries) < MOST_NODES
            ):
                entries[node] = entry
        mine = others.get(self.node)
        if mine is not None and mine.version > self.own.version:
            # an earlier run of this node had a newer version: exceed it
            entries[self.node] = replace(self.own, version=mine.version + 1)
        return View(self.node, entries)

    def _with(self, own: Entry) -> View:
        return View(self.node, {**self.entries, self.node: own})

    # -- what it implies ----------------------------------------------------------------

    @property
    def component(self) -> tuple[int, ...]:
        """Nodes that can be reached over links that work both ways, ascending."""
        reached, todo = {self.node}, [self.node]
        while todo:
            here = todo.pop()
            for there in self.entries[here].hears:
                other = self.entries.get(there)
                if there not in reached and other is not None and here in other.hears:
                    reached.add(there)
                    todo.append(there)
        return tuple(sorted(reached))

    def network(self) -> Network:
        """The component as a network; node k of it is the k-th id."""
        ids = self.component
        index = {node: k for k, node in enumerate(ids)}
        edges = [
            (index[a], index[b])
            for a in ids
            for b in self.entries[a].hears
            if a < b and b in index and a in self.entries[b].hears
        ]
        return Network.from_edges(edges) if edges else Network.complete(1)

    @property
    def epoch(self) -> int:
        """The same number at all nodes of a component, another one after any change."""
        digest = hashlib.sha256()
        for node in self.component:
            entry = self.entries[node]
            digest.update(f"{node} {entry.version} {entry.hears};".encode())
        return int.from_bytes(digest.digest()[:8], "little") >> 1

    @property
    def all_done(self) -> bool:
        """Whether every node of the component has finished in this epoch."""
        epoch = self.epoch
        return all(self.entries[node].done_in == epoch for node in self.component)

    @property
    def lost(self) -> tuple[int, ...]:
        """Nodes that were members, have not left, and cannot be reached."""
        here = self.component
        return tuple(sorted(n for n, e in self.entries.items() if n not in here and e.hears))

    # -- as numbers ---------------------------------------------------------------------

    def pack(self) -> NDArray[np.int64]:
        """[node, version, news, done_in, number of neighbours, neighbours...] of every entry."""
        numbers: list[int] = []
        for node, entry in sorted(self.entries.items()):
            numbers += [node, entry.version, entry.news, entry.done_in, len(entry.hears)]
            numbers += entry.hears
        return np.array(numbers, dtype=np.int64)


def read_entries(payload: NDArray[Any]) -> dict[int, Entry]:
    """Inverse of ``View.pack``; raises ``Malformed`` for anything else."""
    numbers = [int(v) for v in payload]
    entries: dict[int, Entry] = {}
    at = 0
    while at < len(numbers):
        if len(numbers) - at < FIELDS:
            raise Malformed("view")
        node, version, news, done_in, count = numbers[at : at + FIELDS]
        at += FIELDS
        hears = tuple(numbers[at : at + count]) if 0 <= count <= MOST_NEIGHBOURS else ()
        proper = len(hears) == count and min(node, version, news, done_in, *hears) >= 0
        proper = proper and max(node, *hears, 0) < LARGEST_ID and done_in < LARGEST_EPOCH
        proper = proper and max(version, news) < LARGEST_VERSION
        if not proper or node in entries or node in hears:
            raise Malformed("view")
        entries[node] = Entry(version, tuple(sorted(set(hears))), news, done_in)
        at += count
    if len(entries) > MOST_NODES:
        raise Malformed("view")
    return entries
