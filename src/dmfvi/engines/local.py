"""The in-process engine: all nodes on this machine, in turn or in threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dmfvi.consensus.allreduce import EVERYONE
from dmfvi.engines.base import Observer, RoundRecord, Run, Task, check_links, record_round
from dmfvi.engines.links import Links
from dmfvi.inference.shared_sweeps import SharedSweeps
from dmfvi.network import Network
from dmfvi.node import Job, Message, NodeReport, NodeState, message_of, start_node, step_node


class LocalEngine:
    """Runs the node loop for every node of a network in this process.

    n_jobs: threads for the node steps; None or 1 is sequential (best for small shards).
    """

    name = "local"
    transport = "auto"

    def __init__(self, links: Links | None = None, n_jobs: int | None = None) -> None:
        self.links = links or Links()
        self.n_jobs = n_jobs
        self.restart()

    def restart(self) -> None:
        """Before a fit: one random generator and one clock for all its runs, the start's and the model's."""
        self.rng = np.random.default_rng(self.links.seed)
        self.clock = 0

    @property
    def reliable(self) -> bool:
        """Whether the simulated links deliver every message in the next round."""
        return self.links.reliable

    def owned(self, network: Network) -> Sequence[int]:
        """Every node."""
        return range(network.n_nodes)

    def run(self, task: Task) -> Run:
        """All rounds from one belief per node until every node has stopped, or ``max_rounds``."""
        job, network, shards, beliefs = task.job, task.network, task.shards, task.beliefs
        check_links(self, job.rule)
        if job.rule.bitwise and beliefs[0] is not None:
            job = replace(job, model=SharedSweeps(job.model))
        self.links.check_nodes(network.n_nodes)
        views = [job.rule.local_view(network, i) for i in range(network.n_nodes)]
        workers = _workers(self.n_jobs, len(shards))
        pool = ThreadPoolExecutor(workers) if workers > 1 else None
        # threads over nodes and threads inside BLAS would fight for the same cores
        with pool or nullcontext(), threadpool_limits(1) if pool else nullcontext():
            each: Callable[..., Any] = pool.map if pool else map
            nodes = list(each(lambda p: start_node(job, p, shards[p.node], beliefs[p.node]), views))
            post = _PostOffice(network, self.links, job.rule.collective, self.rng)
            post.send([message_of(job, node) for node in nodes], 0)
            run = Run([node.belief for node in nodes], vector_size=nodes[0].own.size)
            for number in range(1, task.max_rounds + 1):
                nodes, reports = self._round(job, nodes, post, number, each)
                record = record_round(job, number, nodes, reports, post.bytes_sent)
                run.history.append(record)
                run.beliefs = [node.belief for node in nodes]
                finished = all(node.done for node in nodes)
                ended = task.observer is not None and task.observer(record, run.beliefs)
                if finished or ended:
                    run.converged = finished and not any(job.gave_up(node) for node in nodes)
                    break
            return run

    def _round(
        self,
        job: Job,
        nodes: list[NodeState],
        post: _PostOffice,
        number: int,
        each: Callable[..., Any],
    ) -> tuple[list[NodeState], list[NodeReport | None]]:
        inboxes = post.deliver(number)
        self.clock += 1
        paused = [self.links.paused(node.view.node, self.clock) for node in nodes]

        def act(node: NodeState) -> tuple[NodeState, NodeReport | None]:
            # a node that has stopped only repeats its last message
            if node.done or paused[node.view.node]:
                return node, None
            return step_node(job, node, inboxes[node.view.node])

        stepped = list(each(act, nodes))
        post.send(
            [None if paused[node.view.node] else message_of(job, node) for node, _ in stepped],
            number,
        )
        return [node for node, _ in stepped], [report for _, report in stepped]


class _PostOffice:
    """Carries messages; a receiver finds the newest undelivered message of each neighbour."""

    def __init__(
        self, network: Network, links: Links, collective: bool, rng: np.random.Generator
    ) -> None:
        self.neighbours = [network.neighbours(i) for i in range(network.n_nodes)]
        self.links = links
        self.reliable = links.reliable
        self.collective = collective
        self.rng = rng
        self.on_the_way: dict[int, list[tuple[int, Message]]] = {}
        self.bytes_sent = 0

    def send(self, messages: Sequence[Message | None], number: int) -> None:
        """Hand over every node's message of a round."""
        self.bytes_sent = 0
        due = self.on_the_way.setdefault(number + 1, [])
        if self.collective:
            sent = [m for m in messages if m is not None]
            total = np.sum([m.payload for m in sent], axis=0)
            self.bytes_sent = sum(m.n_bytes for m in sent)
            due.append((EVERYONE, Message(EVERYONE, number, total, 0, sent[0].stop_at)))
            return
        for message in messages:
            if message is None:
                continue
            self.bytes_sent += message.n_bytes * len(message.recipients)
            for receiver in message.recipients:
                if self.reliable:
                    due.append((receiver, message))
                    continue
                time = self.links.travel_time(self.rng, message.sender, receiver)
                if time is not None:
                    later = self.on_the_way.setdefault(number + 1 + time, [])
                    later.append((receiver, message))

    def deliver(self, number: int) -> list[dict[int, Message]]:
        """Inboxes of a round: of each neighbour the newest message."""
        inboxes: list[dict[int, Message]] = [{} for _ in self.neighbours]
        for receiver, message in self.on_the_way.pop(number, []):
            if receiver == EVERYONE:
                for inbox in inboxes:
                    inbox[EVERYONE] = message
                continue
            known = inboxes[receiver].get(message.sender)
            if known is None or message.round >= known.round:
                inboxes[receiver][message.sender] = message
        return inboxes


def _workers(n_jobs: int | None, n_shards: int) -> int:
    if n_jobs is None:
        return 1
    if n_jobs == 0 or int(n_jobs) != n_jobs:
        raise ValueError(f"n_jobs must be None, -1 or a positive integer, received {n_jobs!r}")
    if n_jobs < 0:
        return min(n_shards, max(1, (os.cpu_count() or 1) + 1 + n_jobs))
    return min(n_shards, int(n_jobs))


__all__ = ["LocalEngine", "Observer", "RoundRecord", "Run", "Task"]
