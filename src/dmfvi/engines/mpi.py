"""The MPI engine: one node a rank, buffers only, for clusters.

Every rank runs the same program with its own shard:

    mpiexec -n 5 python -m mpi4py fit.py

Messages go round by neighbourhood collectives on a distributed graph communicator; while they travel, the
rank writes its history and checkpoint. A dead rank ends the job (MPI's way); with a journal the job resumes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.consensus.allreduce import EVERYONE
from dmfvi.consensus.base import LocalView
from dmfvi.consensus.stopping import NO_STOP
from dmfvi.engines.base import Observer, Run, Task, record_round
from dmfvi.engines.links import Links
from dmfvi.extras import lacking
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.node import (
    Job,
    Message,
    NodeReport,
    NodeState,
    ask_to_stop,
    message_of,
    start_node,
    step_node,
)
from dmfvi.storage.journal import Journal

#: numbers that go with a payload: round, converged_rounds, stop_at
HEADER = 3
#: a phase that has no round to resume
NOTHING = -1


class MpiEngine:
    """Runs this rank's node.

    comm : an mpi4py communicator, COMM_WORLD when None.
    journal : folder for checkpoints, or None.
    every : rounds between checkpoints.
    resume : whether to continue from the checkpoints in ``journal``.
    fingerprint : what a checkpoint must belong to.
    """

    name = "mpi"
    transport = "all-reduce"
    #: MPI delivers every message
    reliable = True

    def __init__(
        self,
        comm: Any = None,
        journal: str | Path | None = None,
        every: int = 20,
        resume: bool = False,
        fingerprint: str = "",
        links: Links | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if links is not None and not links.reliable:
            raise ValueError("simulated links need engine='local', received engine='mpi'")
        self.comm = _world() if comm is None else comm
        self.phase = 0
        self.graphs: dict[tuple[int, ...], Any] = {}
        self.journal: Journal | None = None
        if journal is not None:
            name = f"{fingerprint} {self.comm.Get_size()} ranks"
            self.journal = Journal(Path(journal), self.comm.Get_rank(), name, every)
            if resume:
                self._resume()

    def owned(self, network: Network) -> Sequence[int]:
        """This rank's node."""
        if network.n_nodes != self.comm.Get_size():
            raise ValueError(
                f"the network has {network.n_nodes} nodes, MPI runs {self.comm.Get_size()} ranks: pass "
                f"network=Network.ring({self.comm.Get_size()}), for example, or start it with mpiexec -n {network.n_nodes}"
            )
        return [int(self.comm.Get_rank())]

    def run(self, task: Task) -> Run:
        """All rounds of this rank's node; every rank must call it with the same job and network."""
        job, network, observer = task.job, task.network, task.observer
        (node,) = self.owned(network)
        phase, self.phase = self.phase, self.phase + 1
        if self.journal is not None and phase in self.journal.finished:
            belief, last = self.journal.finished[phase]
            return Run([belief], [last], True)
        view = job.rule.local_view(network, node)
        if self.journal is not None:
            # a rank may be as many rounds ahead of another as there are links between them
            self.journal.keep = 2 + -(-view.diameter // self.journal.every)
        state, number = self._start(job, phase, view, task.shards[0], task.beliefs[0])
        exchange = self._exchange(job, view)
        run = Run([state.belief], vector_size=state.own.size)
        report: NodeReport | None = None
        asked = False  # an observer on this rank has asked to stop
        message = message_of(job, state)
        self._check_sizes(state.own.size)
        while number < task.max_rounds:
            pending = exchange.begin(message)
            if report is not None:  # while the messages travel
                kept = self._keep(job, run, number, state, report, message, phase, observer)
                asked, state = asked or kept is not state, kept
            inbox = pending.finish()
            state, report = step_node(job, state, inbox)
            number += 1
            run.beliefs = [state.belief]
            if state.done:
                break
            message = message_of(job, state)
        if report is not None:
            self._keep(job, run, number, state, report, message, phase, observer)
        if not run.history:  # resumed at its last round
            run.history.append(record_round(job, number, [state], [None], 0))
        swept_all = job.fixed_sweeps is not None and state.sweeps >= job.fixed_sweeps
        met = swept_all or not (asked or job.gave_up(state))
        run.converged = self._everybody(state.done and met)
        if self.journal is not None and run.converged:
            self.journal.finish(phase, (state.belief, run.history[-1]))
        elif self.journal is not None:  # ended early: it may go on from here
            self.journal.note(phase, number, state._replace(done=False, stop_at=NO_STOP))
        return run

    def forget(self) -> None:
        """Remove the checkpoints, once every rank has done with them; all ranks must call it."""
        if self.journal is not None:
            self.comm.Barrier()
            self.journal.clear()

    def _keep(
        self,
        job: Job,
        run: Run,
        number: int,
        state: NodeState,
        report: NodeReport,
        message: Message,
        phase: int,
        observer: Observer | None,
    ) -> NodeState:
        """History, checkpoint and observer, which may ask to stop."""
        sent = message.n_bytes * (1 if job.rule.collective else state.view.degree)
        run.history.append(record_round(job, number, [state], [report], sent))
        if self.journal is not None and self.journal.due(number) and not state.done:
            self.journal.note(phase, number, state)
        enough = observer is not None and observer(run.history[-1], run.beliefs)
        return ask_to_stop(state) if enough else state

    # -- start and resume -------------------------------------------------------------

    def _start(
        self, job: Job, phase: int, view: LocalView, shard: Any, belief: Any
    ) -> tuple[NodeState, int]:
        """A new state, or that of the newest round that every rank remembers."""
        if self.journal is not None:
            common = self._common_round(self.journal.rounds(phase))
            known = None if common == NOTHING else self.journal.at(phase, common)
            if known is not None:
                return known._replace(shard=shard), common
        return start_node(job, view, shard, belief), 0

    def _common_round(self, rounds: list[int]) -> int:
        """The newest round in every rank's list."""
        assert self.journal is not None
        mine = np.full(self.journal.keep, NOTHING, dtype=np.int64)
        kept = rounds[-self.journal.keep :]
        mine[: len(kept)] = kept
        everyone = np.empty((self.comm.Get_size(), len(mine)), dtype=np.int64)
        self.comm.Allgather(mine, everyone)
        shared = set.intersection(*(set(row.tolist()) for row in everyone)) - {NOTHING}
        if not shared and (everyone != NOTHING).any() and self.comm.Get_rank() == 0:
            newest = everyone.max(axis=1).tolist()
            warnings.warn(
                f"the ranks' checkpoints in {self.journal.folder} have no round in common (newest: {newest}): "
                "this phase of the fit begins anew",
                UserWarning,
                stacklevel=5,
            )
        return max(shared, default=NOTHING)

    def _everybody(self, yes: bool) -> bool:
        """Whether it is true on all ranks, so that all continue alike."""
        from mpi4py import MPI

        mine, least = np.array([int(yes)]), np.empty(1, dtype=np.int64)
        self.comm.Allreduce(mine, least, op=MPI.MIN)
        return bool(least[0])

    def _check_sizes(self, size: int) -> None:
        """Messages of different sizes would end in a truncated buffer."""
        sizes = np.empty(self.comm.Get_size(), dtype=np.int64)
        self.comm.Allgather(np.array([size], dtype=np.int64), sizes)
        if (sizes != sizes[0]).any():
            raise ValueError(
                f"ranks have messages of {sizes.tolist()} numbers: their data have different numbers of "
                "columns, or their settings differ"
            )

    def _resume(self) -> None:
        """Read the journals; phases count as finished only where every rank has finished them."""
        assert self.journal is not None
        self._say_what_is_lacking(self.journal.resume())
        finished = np.array([len(self.journal.finished)], dtype=np.int64)
        least = np.empty_like(finished)
        from mpi4py import MPI

        self.comm.Allreduce(finished, least, op=MPI.MIN)
        dropped = [phase for phase in self.journal.finished if phase >= int(least[0])]
        for (
            phase
        ) in dropped:  # someone was killed in it: all go back to a round of it that all have
            del self.journal.finished[phase]

    def _say_what_is_lacking(self, kept: bool) -> None:
        """Warn when a fit that should resume restarts instead."""
        assert self.journal is not None
        everyone = np.empty(self.comm.Get_size(), dtype=np.int64)
        self.comm.Allgather(np.array([int(kept)], dtype=np.int64), everyone)
        lacking = np.flatnonzero(everyone == 0).tolist()
        if lacking and self.comm.Get_rank() == 0:
            everybody = len(lacking) == len(everyone)
            whose = "no checkpoint" if everybody else f"no checkpoint of ranks {lacking}"
            warnings.warn(
                f"{whose} in {self.journal.folder}: the fit begins anew",
                UserWarning,
                stacklevel=4,
            )

    # -- messages -----------------------------------------------------------------------

    def _exchange(self, job: Job, view: LocalView) -> _Exchange:
        if job.rule.collective:
            return _Sum(self.comm)
        if view.neighbours not in self.graphs:
            ends = list(view.neighbours)
            self.graphs[view.neighbours] = self.comm.Create_dist_graph_adjacent(
                ends, ends, reorder=False
            )
        return _Neighbours(self.graphs[view.neighbours], view)


class _Exchange:
    """One round of messages: begun, and finished when the inbox is needed."""

    def begin(self, message: Message) -> _Exchange:
        raise NotImplementedError

    def finish(self) -> dict[int, Message]:
        raise NotImplementedError


class _Neighbours(_Exchange):
    """Neighbour_allgather on the graph: the same buffers to every neighbour, header and payload apart.

    The payload goes out of the array it is in; what a rule keeps of a message it keeps until the next one, so two
    receiving buffers take turns.
    """

    def __init__(self, graph: Any, view: LocalView) -> None:
        self.graph = graph
        self.view = view
        self.heads = np.empty((view.degree, HEADER), dtype=np.int64)
        self.receive: list[FloatArray] = []
        self.turn = 0
        self.sending: tuple[Any, ...] = ()  # alive until the exchange is over
        self.requests: list[Any] = []

    def begin(self, message: Message) -> _Exchange:
        payload = np.ascontiguousarray(message.payload)
        if not self.receive or self.receive[0].shape[1] != payload.size:
            self.receive = [np.empty((self.view.degree, payload.size)) for _ in range(2)]
        self.turn = 1 - self.turn
        head = np.array([message.round, message.converged_rounds, message.stop_at], dtype=np.int64)
        self.sending = (head, payload)
        self.requests = [
            self.graph.Ineighbor_allgather(head, self.heads),
            self.graph.Ineighbor_allgather(payload, self.receive[self.turn]),
        ]
        return self

    def finish(self) -> dict[int, Message]:
        for request in self.requests:
            request.Wait()
        return {
            j: Message(j, int(head[0]), row, int(head[1]), int(head[2]))
            for j, head, row in zip(
                self.view.neighbours, self.heads, self.receive[self.turn], strict=True
            )
        }


class _Sum(_Exchange):
    """Iallreduce of the payloads, for rules that want the sum."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def begin(self, message: Message) -> _Exchange:
        from mpi4py import MPI

        self.sending = (np.ascontiguousarray(message.payload), np.array([message.stop_at]))
        self.round = message.round
        self.total, self.stop_at = (np.empty_like(part) for part in self.sending)
        self.requests = [
            self.comm.Iallreduce(self.sending[0], self.total),
            self.comm.Iallreduce(self.sending[1], self.stop_at, op=MPI.MIN),
        ]
        return self

    def finish(self) -> dict[int, Message]:
        for request in self.requests:
            request.Wait()
        return {EVERYONE: Message(EVERYONE, self.round, self.total, 0, int(self.stop_at[0]))}


def _world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where mpi4py finds no library
        raise lacking("the engine mpi", "mpi4py and an MPI library", "mpi") from error
    return MPI.COMM_WORLD
