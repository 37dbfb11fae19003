"""The in-process engine: all nodes of a network in this process, by the code that runs on a real one.

Every node is a thread with its own endpoint and network engine; only the socket is left out. Nodes continue with what
they have when a message does not arrive in time, as they would on a network, and ``Faults`` may be injected.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from dmfvi.engines.base import (
    MOST_NODES_RECORDED,
    NodeRound,
    Observer,
    RoundRecord,
    Run,
    Task,
    check_links,
)
from dmfvi.engines.local import LocalEngine
from dmfvi.engines.net.clock import REAL, Clock
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.engine import NetworkEngine
from dmfvi.engines.net.epochs import NetworkNode
from dmfvi.engines.net.faults import Faults, FaultyTransport
from dmfvi.engines.net.inproc import Hub, HubClosed, InProcessTransport
from dmfvi.engines.net.membership import Entry, View
from dmfvi.engines.net.transport import Transport
from dmfvi.network import Network
from dmfvi.storage.journal import Journal

logger = logging.getLogger(__name__)

#: seconds to wait for a neighbour's message: where none is lost it comes, however busy the machine is
PATIENCE, PATIENCE_WITH_FAULTS = 300.0, 0.05
#: seconds that a node which has finished a run listens at a time, to answer those that have not
LISTENING = 0.05
#: what frames of this process are marked with
FINGERPRINT = b"dmfvi in process"


class InProcessEngine:
    """Runs every node of a network in a thread of its own, with the network engine.

    Parameters
    ----------
    faults : Faults or None
        Faults of arriving frames; each node draws from a generator of its own.
    patience : float or None
        Seconds to wait for a neighbour's message of a round; None is 300, or 0.05 with faults.
    compression : {"none", "single", "quantized", "top-k"}
        Compression of messages, as in a node's file.
    journal : path or None
        Folder for checkpoints.
    every : int
        Rounds between checkpoints.
    resume : bool
        Whether to continue from the checkpoints in ``journal``.
    fingerprint : str
        What a checkpoint must belong to.
    clock : Clock
        The time that nodes wait by.
    """

    name = "inproc"
    transport = "auto"
    #: a message may come after its round
    reliable = False

    def __init__(
        self,
        faults: Faults | None = None,
        patience: float | None = None,
        compression: str = "none",
        journal: str | Path | None = None,
        every: int = 20,
        resume: bool = False,
        fingerprint: str = "",
        clock: Clock = REAL,
    ) -> None:
        if patience is None:
            patience = PATIENCE if faults is None else PATIENCE_WITH_FAULTS
        self.faults = faults
        # no node leaves: a silent node is computing
        self.timing = Timing(patience=patience, silence=inf)
        self.compression = compression
        self.clock = clock
        self.phase = 0
        self.folder = None if journal is None else Path(journal)
        self.every, self.resume, self.fingerprint = every, resume, fingerprint
        self.journals: list[Journal] = []

    def owned(self, network: Network) -> Sequence[int]:
        """Every node."""
        return range(network.n_nodes)

    def run(self, task: Task) -> Run:
        """All rounds of one phase at all nodes; the observer is called by one thread at a time."""
        network, shards, beliefs = task.network, task.shards, task.beliefs
        if network.n_nodes == 1:
            return LocalEngine().run(task)
        check_links(self, task.job.rule)
        self._open_journals(network, task.job.rule.bitwise)
        hub = Hub(self.clock)
        merged = MergedRounds(beliefs, task.observer)
        engines = [self._engine(network, node, hub) for node in range(network.n_nodes)]
        runs: list[Run | None] = [None] * network.n_nodes
        errors: list[BaseException] = []
        finished = threading.Event()

        def work(node: int) -> None:
            try:
                own = replace(
                    task, shards=[shards[node]], beliefs=[beliefs[node]], observer=merged.of(node)
                )
                runs[node] = engines[node].run(own)
                if merged.end(node):
                    finished.set()
                while not finished.is_set():  # others may not have received the final message
                    engines[node].node.listen(LISTENING)
            except HubClosed:
                pass
            except BaseException as error:
                errors.append(error)
                hub.close()
            finally:
                self.clock.leave()

        threads = [
            threading.Thread(target=work, args=(node,), name=f"node {node}", daemon=True)
            for node in range(network.n_nodes)
        ]
        # threads over nodes and threads inside BLAS would fight for the same cores
        with threadpool_limits(1):
            try:
                for _ in threads:
                    self.clock.join()
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            except BaseException:  # of the caller, such as KeyboardInterrupt
                hub.close()
                for thread in threads:
                    if thread.ident is not None:
                        thread.join()
                raise
        if errors:
            raise errors[0]
        self.phase += 1
        ended = [run for run in runs if run is not None]
        last = _merged([run.history[-1] for run in ended])
        history = merged.history or [last]
        history[-1] = replace(history[-1], objective=last.objective)  # of one that caught up
        return Run(
            [run.beliefs[0] for run in ended],
            history,
            all(run.converged for run in ended),
            vector_size=ended[0].vector_size,
        )

    def forget(self) -> None:
        """Remove the checkpoints."""
        for journal in self.journals:
            journal.clear()

    def _engine(self, network: Network, node: int, hub: Hub) -> NetworkEngine:
        neighbours = network.neighbours(node)
        transport: Transport = InProcessTransport(hub, node, neighbours)
        if self.faults is not None:
            faults = replace(
                self.faults, seed=self.faults.seed + network.n_nodes * self.phase + node
            )
            transport = FaultyTransport(transport, faults, self.clock)
        endpoint = NetworkNode(
            node,
            neighbours,
            transport,
            FINGERPRINT,
            1,
            self.timing,
            self.compression,
            self.clock,
        )
        everybody = {i: Entry(1, network.neighbours(i)) for i in range(network.n_nodes)}
        endpoint.begin(View(node, everybody), self.phase)
        return NetworkEngine(endpoint, self.journals[node] if self.journals else None)

    # -- journals -----------------------------------------------------------------------

    def _open_journals(self, network: Network, in_step: bool) -> None:
        """One journal a node, cut back to a round that every node has unless nodes sweep in step by themselves."""
        if self.folder is None:
            return
        if not self.journals:
            name = f"{self.fingerprint} {network.n_nodes} nodes in process"
            # a node may be as many rounds ahead of another as there are links between them
            keep = 2 + -(-network.diameter // self.every)
            self.journals = [
                Journal(self.folder, node, name, self.every, keep)
                for node in range(network.n_nodes)
            ]
            if self.resume:
                self._resume(self.journals)
        rounds = [set(journal.rounds(self.phase)) for journal in self.journals]
        if in_step and all(rounds):
            return  # neighbours are at most one sum apart, and hand each other the results
        common = max(set.intersection(*rounds), default=-1)
        if common < 0 and any(rounds):
            newest = [max(known, default=-1) for known in rounds]
            warnings.warn(
                f"the nodes' checkpoints in {self.folder} have no round in common (newest: {newest}): "
                "this phase of the fit begins anew",
                UserWarning,
                stacklevel=4,
            )
        for journal in self.journals:
            journal.snapshots = [
                (phase, number, state)
                for phase, number, state in journal.snapshots
                if phase != self.phase or number <= common
            ]
        if common > 0:
            logger.info("phase %d goes on from round %d", self.phase, common)

    def _resume(self, journals: list[Journal]) -> None:
        """Read the journals; phases count as finished only where every node has finished them."""
        kept = [journal.resume() for journal in journals]
        if not all(kept):
            warnings.warn(
                f"no checkpoint of nodes {[i for i, known in enumerate(kept) if not known]} in {self.folder}: "
                "the fit begins anew",
                UserWarning,
                stacklevel=5,
            )
        least = min(len(journal.finished) for journal in journals)
        for journal in journals:
            journal.finished = {p: known for p, known in journal.finished.items() if p < least}


class MergedRounds:
    """The rounds of all nodes as one history: a round is over when every node has recorded it, or has ended.

    The node that completes a round calls the observer, so no node is more than a diameter of rounds ahead of it.
    """

    def __init__(self, beliefs: Sequence[Any], observer: Observer | None) -> None:
        self.observer = observer
        self.history: list[RoundRecord] = []
        self.beliefs = list(beliefs)
        self.last: list[RoundRecord | None] = [None] * len(beliefs)
        self.pending: list[deque[tuple[RoundRecord, Any]]] = [deque() for _ in beliefs]
        self.ended = [False] * len(beliefs)
        self.stop = False
        self.lock = threading.Lock()

    def of(self, node: int) -> Observer:
        """The observer of one node's rounds; True asks that node to stop."""

        def record(round_record: RoundRecord, beliefs: list[Any]) -> bool:
            with self.lock:
                self.pending[node].append((round_record, beliefs[0]))
                self._merge()
                return self.stop

        return record

    def end(self, node: int) -> bool:
        """A node's run is over; whether it was the last one."""
        with self.lock:
            self.ended[node] = True
            self._merge()
            return all(self.ended)

    def _merge(self) -> None:
        while any(self.pending) and all(
            waiting or over for waiting, over in zip(self.pending, self.ended, strict=True)
        ):
            acting = []
            for node, waiting in enumerate(self.pending):
                if waiting:
                    record, self.beliefs[node] = waiting.popleft()
                    self.last[node] = record
                    acting.append(record)
            first = self.last[0] or acting[0]
            merged = _merged(acting)
            change = max(record.change for record in self.last if record is not None)
            known = [record for record in self.last if record is not None]
            few = len(self.last) <= MOST_NODES_RECORDED and len(known) == len(self.last)
            nodes = (NodeRound(each.change, each.disagreement, each.known) for each in known)
            merged = replace(
                merged,
                objective=first.objective,
                change=change,
                nodes=tuple(nodes) if few else (),
            )
            self.history.append(merged)
            if self.observer is not None and self.observer(merged, list(self.beliefs)):
                self.stop = True


def _merged(records: Sequence[RoundRecord]) -> RoundRecord:
    """One line of the history from those of several nodes."""
    return RoundRecord(
        round=max(record.round for record in records),
        objective=records[0].objective,
        change=max(record.change for record in records),
        disagreement=max(record.disagreement for record in records),
        bytes_sent=sum(record.bytes_sent for record in records),
        limited_steps=sum(record.limited_steps for record in records),
        swept=any(record.swept for record in records),
        sweeps=max(record.sweeps for record in records),
        least_sweeps=min(record.least_sweeps for record in records),
        known=min(record.known for record in records),
    )
