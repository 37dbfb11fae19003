"""Membership: a link-state view that neighbours flood, and the network it implies.

Every node owns one signed entry: a version that only grows, the neighbours it receives frames from, and what it takes
part with, which is a digest of its data and settings. A link works while both ends list each other; a node's component
is what it can reach over working links. All nodes of a component hold the same entries, so they agree on the network, on
the data and on an epoch without a coordinator. A partition is two components, each with an epoch of its own; when it
heals they are one again.

Which nodes are removed: one that announces that it leaves, and one that no member receives from. A neighbour that receives
nothing removes its own link only, so a silent node is removed when all of its neighbours among the members have done so. A majority would lose the data
of a node that can still be reached through one of them, and let a few expel a node that the others receive from.

Which nodes take part: a fit begins when every member has signed its epoch, a hash over all entries. Each of them has in it the random
number of a start of its own and a version, so that an entry of a node that has gone, repeated by a neighbour that claims
to receive from it, is no member of an epoch that began after it went.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, overload

from dmfvi.engines.net.frames import Malformed
from dmfvi.engines.net.signatures import UNSIGNED, Signer
from dmfvi.network import Network

#: bounds of what a view may claim
MOST_NODES, MOST_NEIGHBOURS, LARGEST_ID = 4096, 1024, 2**32 - 1
#: bytes of a certificate (with those of authorities in between) and of a signature
LONGEST_CERTIFICATE, LONGEST_SIGNATURE = 16_384, 512
#: versions leave space to exceed them
LARGEST_VERSION, LARGEST_EPOCH = 2**53, 2**63
#: bytes of a digest of data and settings
DIGEST_SIZE = 32
#: node; then version, news, epochs it has finished and takes part in, start, attempt, rows, digest, flags, numbers of
#: neighbours
NODE, FIELDS = struct.Struct("<I"), struct.Struct(f"<QQQQQQQ{DIGEST_SIZE}sBHH")
LENGTHS = struct.Struct("<HH")
LEFT = 1


Value = TypeVar("Value")


class Once(Generic[Value]):
    """A property that is computed once; without the lock of ``functools.cached_property`` before Python 3.12."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Once[Value]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...

    def __get__(self, owner: object | None, kind: type) -> Once[Value] | Value:
        if owner is None:
            return self
        value = owner.__dict__[self.name] = self.compute(owner)
        return value


class Share(NamedTuple):
    """What a node takes part with: equal shares are the same data, settings and start of a program."""

    start: (
        int  # random number of the program's start; one that goes on from its checkpoint keeps it
    )
    attempt: int  # grows when the node asks for a new fit
    digest: bytes  # of data and settings
    rows: int


NO_SHARE = Share(0, 0, bytes(DIGEST_SIZE), 0)


@dataclass(frozen=True)
class Entry:
    """One node's entry in the view."""

    version: int
    receives_from: tuple[int, ...]
    news: int = 0  # grows with what is no change of membership
    done_in: int = 0  # epoch in which it has finished
    share: Share = NO_SHARE
    left: bool = False  # it has left for good, and says so itself
    peers: tuple[int, ...] = ()  # all neighbours in its configuration, met or not
    begun_in: int = 0  # epoch that it takes part in
    signature: bytes = field(default=b"", compare=False)
    certificate: bytes = field(default=b"", compare=False)

    @property
    def left_a_fit(self) -> bool:
        """Whether it has left after it had signed the epoch of a fit with others."""
        return self.left and self.begun_in != 0

    def newer_than(self, other: Entry | None) -> bool:
        """Whether it has a later version; of two starts with the same version the larger number counts, or later news.

        All nodes must decide alike. A node whose own entry loses receives the other one and exceeds its version.
        """
        return other is None or self._rank > other._rank

    @Once
    def _rank(self) -> tuple[int, int, int]:
        return self.version, self.share.start, self.news

    def content(self, node: int) -> bytes:
        """What is signed: everything but the signature and the certificate."""
        return NODE.pack(node) + self._fields

    def packed(self, node: int) -> bytes:
        """As it is sent."""
        return NODE.pack(node) + self._sent

    # an entry is sent, compared and hashed far more often than it changes

    @Once
    def _fields(self) -> bytes:
        head = FIELDS.pack(
            self.version,
            self.news,
            self.done_in,
            self.begun_in,
            self.share.start,
            self.share.attempt,
            self.share.rows,
            self.share.digest,
            LEFT * self.left,
            len(self.receives_from),
            len(self.peers),
        )
        ids = (*self.receives_from, *self.peers)
        return head + struct.pack(f"<{len(ids)}I", *ids)

    @Once
    def _sent(self) -> bytes:
        lengths = LENGTHS.pack(len(self.signature), len(self.certificate))
        return self._fields + lengths + self.signature + self.certificate

    def same_as(self, other: Entry) -> bool:
        """Whether all but the signatures is the same."""
        return self is other or self._fields == other._fields

    @Once
    def mark(self) -> str:
        """What an epoch depends on."""
        return f"{self.version} {self.receives_from} {tuple(self.share)}"

    def signed(self, node: int, signer: Signer) -> Entry:
        """With the signature of its owner."""
        signature = signer.sign(self.content(node))
        if signature == self.signature and signer.certificate == self.certificate:
            return self
        return replace(self, signature=signature, certificate=signer.certificate)

    def believed(self, node: int, signer: Signer) -> bool:
        """Whether the node itself has signed it."""
        return signer.believes(node, self.content(node), self.signature, self.certificate)


@dataclass(frozen=True)
class View:
    """All entries that a node knows of."""

    node: int
    entries: dict[int, Entry] = field(default_factory=dict)
    signer: Signer = field(default=UNSIGNED, compare=False)

    @classmethod
    def first(
        cls,
        node: int,
        version: int,
        share: Share = NO_SHARE,
        signer: Signer = UNSIGNED,
        peers: Iterable[int] = (),
    ) -> View:
        """The view of a node that has received nothing yet."""
        own = Entry(version, (), share=share, peers=tuple(sorted(peers)))
        return cls(node, {node: own.signed(node, signer)}, signer)

    @property
    def own(self) -> Entry:
        """This node's entry."""
        return self.entries[self.node]

    def receiving_from(self, neighbours: set[int]) -> View:
        """The view after the set of neighbours that frames arrive from has changed."""
        receives_from = tuple(sorted(neighbours))
        if receives_from == self.own.receives_from:
            return self
        return self._with(
            replace(self.own, version=self.own.version + 1, receives_from=receives_from)
        )

    def renewed(self) -> View:
        """This node asks for a new fit, which begins another epoch."""
        share = self.own.share._replace(attempt=self.own.share.attempt + 1)
        return self._with(replace(self.own, version=self.own.version + 1, share=share))

    def finished(self, epoch: int) -> View:
        """This node is done in that epoch."""
        return self._with(replace(self.own, news=self.own.news + 1, done_in=epoch))

    def begun(self, epoch: int) -> View:
        """This node takes part in that epoch, and can no longer help to finish another one."""
        done_in = epoch if self.own.done_in == epoch else 0
        if self.own.begun_in == epoch and self.own.done_in == done_in:
            return self
        return self._with(
            replace(self.own, news=self.own.news + 1, begun_in=epoch, done_in=done_in)
        )

    def leaving(self, took_part: bool) -> View:
        """This node leaves for good; ``took_part``: after it had signed the epoch of a fit with others, which its entry names."""
        own = replace(self.own, version=self.own.version + 1, receives_from=(), left=True)
        return self._with(own if took_part else replace(own, begun_in=0, done_in=0))

    def merged(self, others: dict[int, Entry]) -> tuple[View, list[int]]:
        """With a neighbour's entries, of each node the newest one, and nodes whose new entries they had not signed."""
        new: dict[int, Entry] = {}
        forged = []
        for node, entry in others.items():
            known = self.entries.get(node)
            if entry is known or node == self.node or not entry.newer_than(known):
                continue
            if known is None and len(self.entries) + len(new) >= MOST_NODES:
                continue
            if entry.believed(node, self.signer):
                new[node] = entry
            else:
                forged.append(node)
                break  # checking costs time: the rest of such a neighbour's view can wait
        return self._with_all(new), forged

    def exceeding(self, version: int) -> View:
        """With a later version of the own entry than one that others know."""
        return self._with(replace(self.own, version=version + 1))

    def repeated(self, news: int) -> View:
        """With later news than those of an earlier run of this program, which others know."""
        return self._with(replace(self.own, news=news + 1))

    def _with(self, own: Entry) -> View:
        return self._with_all({self.node: own.signed(self.node, self.signer)})

    def _with_all(self, new: dict[int, Entry]) -> View:
        if not new:
            return self
        known = self.entries
        view = View(self.node, {**known, **new}, self.signer)
        for node, entry in new.items():
            before = known.get(node)
            if before is None or before.mark != entry.mark:
                break
        else:
            # news change neither members nor epoch
            view.__dict__["component"], view.__dict__["epoch"] = self.component, self.epoch
        return view

    # -- over a restart -----------------------------------------------------------------

    def remembered(self) -> dict[str, Any]:
        """What a program must know to come back as the same member, for JSON."""
        own = self.own
        facts = {"version": own.version, "receives_from": list(own.receives_from)}
        return facts | own.share._asdict() | {"digest": own.share.digest.hex()}

    def restored(self, known: Mapping[str, Any], neighbours: Collection[int]) -> View | None:
        """The view of a node that comes back as the same member; None where it has other data or settings now."""
        share = self.own.share
        receives_from = tuple(
            sorted(int(v) for v in known["receives_from"] if int(v) in neighbours)
        )
        if known["digest"] != share.digest.hex():
            return None
        same = share._replace(start=int(known["start"]), attempt=int(known["attempt"]))
        return self._with(
            replace(
                self.own, version=int(known["version"]), receives_from=receives_from, share=same
            )
        )

    # -- what it implies ----------------------------------------------------------------

    @Once
    def component(self) -> tuple[int, ...]:
        """Nodes that can be reached over links that work both ways, ascending."""
        reached, todo = {self.node}, [self.node]
        while todo:
            here = todo.pop()
            for there in self.entries[here].receives_from:
                other = self.entries.get(there)
                if there not in reached and other is not None and here in other.receives_from:
                    reached.add(there)
                    todo.append(there)
        return tuple(sorted(reached))

    @property
    def members(self) -> dict[int, Share]:
        """The nodes of the component and what each takes part with."""
        return {node: self.entries[node].share for node in self.component}

    def network(self) -> Network:
        """The component as a network; node k of it is the k-th id."""
        ids = self.component
        index = {node: k for k, node in enumerate(ids)}
        edges = [
            (index[a], index[b])
            for a in ids
            for b in self.entries[a].receives_from
            if a < b and b in index and a in self.entries[b].receives_from
        ]
        return Network.of_component(len(ids), edges)

    @Once
    def epoch(self) -> int:
        """The same number at all nodes of a component, another one after any change of links, members or data."""
        marks = "".join(f"{node} {self.entries[node].mark};" for node in self.component)
        return int.from_bytes(hashlib.sha256(marks.encode()).digest()[:8], "little") >> 1

    def done(self, nodes: Iterable[int], epoch: int) -> bool:
        """Whether all these nodes have announced that they are done in that epoch."""
        return all(self.entries[node].done_in == epoch for node in nodes)

    def unconfirmed(self, nodes: Iterable[int], epoch: int) -> list[int]:
        """Those of the nodes that have not signed that they take part in that epoch."""
        entries = ((node, self.entries[node]) for node in nodes)
        return [node for node, entry in entries if epoch not in (entry.begun_in, entry.done_in)]

    @property
    def known(self) -> set[int]:
        """All nodes that some node has met or has in its configuration."""
        return set(self.entries).union(*(entry.peers for entry in self.entries.values()))

    @property
    def lost(self) -> tuple[int, ...]:
        """Nodes that were members, have not left, and cannot be reached."""
        here = self.component
        return tuple(sorted(n for n, e in self.entries.items() if n not in here and not e.left))

    # -- as bytes -----------------------------------------------------------------------

    def pack(self, nodes: Iterable[int] | None = None) -> bytes:
        """The entries of these nodes, or of all."""
        chosen = sorted(self.entries) if nodes is None else sorted(nodes)
        return b"".join([self.entries[node].packed(node) for node in chosen])


def read_entries(
    payload: bytes, known: Mapping[int, Entry] = MappingProxyType({})
) -> dict[int, Entry]:
    """Inverse of ``View.pack``, without entries that are byte for byte in ``known``; raises ``Malformed`` for anything else."""
    entries: dict[int, Entry] = {}
    at, before = 0, -1
    try:
        while at < len(payload):
            (node,) = NODE.unpack_from(payload, at)
            at += NODE.size
            if node <= before:
                raise Malformed("view")
            before, entry = node, known.get(node)
            if entry is not None and payload.startswith(entry._sent, at):
                at += len(entry._sent)
                continue
            entries[node], at = _read(payload, node, at)
            if len(entries) > MOST_NODES:
                raise Malformed("view")
    except struct.error:
        raise Malformed("view") from None
    return entries


def _ascending(ids: tuple[int, ...]) -> bool:
    return len(ids) < 2 or all(a < b for a, b in pairwise(ids))


def _read(payload: bytes, node: int, at: int) -> tuple[Entry, int]:
    """That node's entry from a position in a view, and where the next one begins."""
    begins = at
    fields = FIELDS.unpack_from(payload, at)
    version, news, done_in, begun_in, start, attempt, rows, digest, flags, n_sources, n_peers = (
        fields
    )
    at += FIELDS.size
    if max(n_sources, n_peers) > MOST_NEIGHBOURS or flags > LEFT:
        raise Malformed("view")
    ids = struct.unpack_from(f"<{n_sources + n_peers}I", payload, at)
    receives_from, peers = ids[:n_sources], ids[n_sources:]
    at += 4 * len(ids)
    ends = at
    n_signature, n_certificate = LENGTHS.unpack_from(payload, at)
    at += LENGTHS.size
    after = at + n_signature + n_certificate
    proper = n_signature <= LONGEST_SIGNATURE and n_certificate <= LONGEST_CERTIFICATE
    proper = proper and after <= len(payload) and max(done_in, begun_in, start) < LARGEST_EPOCH
    proper = proper and max(version, news, attempt, rows) < LARGEST_VERSION
    proper = proper and _ascending(receives_from) and _ascending(peers)
    if not proper or node in receives_from:
        raise Malformed("view")
    signature = bytes(payload[at : at + n_signature])
    certificate = bytes(payload[at + n_signature : after])
    share = Share(start, attempt, digest, rows)
    left = bool(flags)
    entry = Entry(
        version, receives_from, news, done_in, share, left, peers, begun_in, signature, certificate
    )
    # they are sent on as they came
    entry.__dict__["_fields"] = payload[begins:ends]
    entry.__dict__["_sent"] = payload[begins:after]
    return entry, after
