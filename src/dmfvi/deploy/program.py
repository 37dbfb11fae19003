"""The program of a node on a network: meet the neighbours, agree, fit, stop together, keep the model.

When somebody comes or goes the fit begins anew with who is there; a node that comes back within the silence that
others tolerate goes on from its journal as if it had only been slow.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dmfvi.deploy.config import NodeConfig
from dmfvi.deploy.data import Data
from dmfvi.engines.base import Engine, RoundRecord, Run, Task
from dmfvi.engines.local import LocalEngine
from dmfvi.engines.net.clock import REAL, Clock
from dmfvi.engines.net.endpoint import MembershipChanged, NetworkNode
from dmfvi.engines.net.engine import NetworkEngine
from dmfvi.engines.net.faults import FaultyTransport
from dmfvi.engines.net.membership import Entry, View
from dmfvi.engines.net.transport import Transport
from dmfvi.engines.net.zenoh import ZenohTransport
from dmfvi.network import Network
from dmfvi.storage import FILE_NAME, save
from dmfvi.storage.files import write_text
from dmfvi.storage.journal import Journal

logger = logging.getLogger(__name__)

#: seconds between two lines of status
STATUS_EVERY = 0.25


class Status(NamedTuple):
    """What a node says of itself, for people."""

    node: int
    state: str  # meeting, agreeing on a start, fitting, waiting for others, done
    members: list[int]
    rounds: int
    change: float
    disagreement: float
    sent_bytes: int
    refused: dict[str, int]
    converged: bool | None = None  # known when a fit has ended


OnStatus = Callable[[Status], None]


def run_node(config: NodeConfig, on_status: OnStatus | None = None) -> Path:
    """Run until this node and all it can reach are done; gives the path of the model."""
    data = config.model.read(config.data)
    transport: Transport = ZenohTransport(
        config.node, config.listen, config.peers, config.identity, config.cluster
    )
    if config.faults is not None:
        transport = FaultyTransport(transport, config.faults)
    try:
        program = NodeProgram(config, transport, data, on_status)
        try:
            return program.run()
        except (KeyboardInterrupt, SystemExit):
            program.node.leave()
            raise
    finally:
        transport.close()


class NodeProgram:
    """One node with its data and its transport."""

    def __init__(
        self,
        config: NodeConfig,
        transport: Transport,
        data: Data,
        on_status: OnStatus | None = None,
        clock: Clock = REAL,
    ) -> None:
        self.config = config
        self.data = data
        self.on_status = on_status
        self.clock = clock
        self.said_at = -np.inf
        self.last: RoundRecord | None = None
        self.converged: bool | None = None
        config.model.check(data)
        self.node = NetworkNode(
            config.node,
            tuple(config.peers),
            transport,
            config.model.fingerprint(data),
            int(time.time()),
            config.timing,
            config.compression,
            clock,
        )
        self._remember_view()

    def run(self) -> Path:
        """Fit with who is there until nobody comes or goes any more."""
        wait_for, wait_seconds = self.config.wait_for, self.config.wait_seconds
        if wait_for is None and self.config.peers:
            wait_for = 2  # a node that meets nobody must not take its own rows for everybody's
        path: Path | None = None
        while True:
            epoch, members = self.node.epoch, self.node.members
            try:
                self._say("meeting")
                network = self.node.gather(wait_for, wait_seconds, self._watch_meeting)
                finished = self.node.left_behind_by(epoch, members)
                if finished and path is not None:
                    return path  # all that is left to do is to go home too
                if finished:
                    raise TimeoutError(
                        f"nodes {finished} have finished and gone while node {self.config.node} was away, after "
                        "waiting for [timing] linger seconds: take the posterior from one of them, or run all again"
                    )
                path, self.converged = None, None
                self._write_view()
                logger.info(
                    "node %d: fit begins with %s", self.config.node, list(self.node.members)
                )
                self._say("agreeing on a start")
                model = self.fit(network)
                self.converged = bool(model.converged_)
                logger.info(
                    "node %d: fit ends, %s",
                    self.config.node,
                    "converged" if self.converged else "NOT converged",
                )
                path = save(model, self.config.out / FILE_NAME, self._details())
                self._say("waiting for others")
                self.node.finish()
                self._forget()
                self._say_who_was_not_there()
                self._say("done")
                return path
            except MembershipChanged as reason:
                logger.info("node %d: fit begins anew: %s", self.config.node, reason)
                wait_for = None  # go on with who is there

    def fit(self, network: Network) -> Any:
        """One fit in the present epoch, from the journal if it belongs to it."""
        journal = Journal(
            self.config.out / "checkpoint",
            self.config.node,
            self.config.model.run_mark(self.data, f"epoch {self.node.epoch}"),
            self.config.checkpoint_every,
        )
        try:
            journal.resume()
        except ValueError as reason:  # of other members, another model, or torn: begin anew
            logger.warning("node %d begins anew: %s", self.config.node, reason)
            journal.clear()
        here: Engine = NetworkEngine(self.node, journal) if network.n_nodes > 1 else LocalEngine()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.config.model.fit(self.data, network, FollowedEngine(here, self._watch))

    def _details(self) -> dict[str, Any]:
        """What the saved model's file says of the run: whose data are in it, and of which columns."""
        return self.config.model.details(self.data) | {"members": list(self.node.members)}

    def _say_who_was_not_there(self) -> None:
        absent = sorted(set(self.config.peers) - set(self.node.members))
        if absent:
            warnings.warn(
                f"peers {absent} were not there: their data are not in this result "
                "(wait_for in [node] says how many nodes to wait for)",
                UserWarning,
                stacklevel=3,
            )

    # -- status -------------------------------------------------------------------------

    def _watch(self, record: RoundRecord) -> None:
        self.last = record
        if self.clock() - self.said_at > STATUS_EVERY:
            self._say("fitting")

    def _watch_meeting(self) -> None:
        if self.clock() - self.said_at > STATUS_EVERY:
            self._say("meeting")

    def _say(self, state: str) -> None:
        record = self.last
        self.said_at = self.clock()
        if self.on_status is None:
            return
        self.on_status(
            Status(
                self.config.node,
                state,
                list(self.node.view.component),
                record.round if record else 0,
                record.change if record else float("nan"),
                record.disagreement if record else float("nan"),
                self.node.counts.sent_bytes,
                dict(self.node.counts.refused),
                self.converged,
            )
        )

    # -- what a node remembers of itself ------------------------------------------------

    @property
    def _view_file(self) -> Path:
        return self.config.out / "checkpoint" / "view.json"

    def _write_view(self) -> None:
        own = self.node.view.own
        write_text(self._view_file, json.dumps({"version": own.version, "hears": own.hears}))

    def _remember_view(self) -> None:
        """Come back as the same member: with the entry that the others still hold."""
        try:
            content = json.loads(self._view_file.read_text())
            hears = tuple(sorted(int(v) for v in content["hears"] if int(v) in self.config.peers))
            entry = Entry(int(content["version"]), hears)
        except (OSError, ValueError, KeyError, TypeError):
            return
        self.node.view = View(self.config.node, {self.config.node: entry})
        self.node.heard_at = dict.fromkeys(hears, self.node.clock())

    def _forget(self) -> None:
        for path in sorted((self.config.out / "checkpoint").glob("*")):
            path.unlink(missing_ok=True)


class FollowedEngine:
    """Another engine whose fits are followed round by round; sums on the way to a start are not."""

    def __init__(self, inner: Engine, follow: Callable[[RoundRecord], None]) -> None:
        self.inner = inner
        self.follow = follow
        self.name, self.transport = inner.name, inner.transport

    @property
    def reliable(self) -> bool:
        """As the other engine is."""
        return self.inner.reliable

    def owned(self, network: Network) -> Sequence[int]:
        """As the other engine has it."""
        return self.inner.owned(network)

    def run(self, task: Task) -> Run:
        """The other engine's run; only what somebody observes is a fit."""
        observer = task.observer
        if observer is None:
            return self.inner.run(task)

        def both(record: RoundRecord, now: list[Any]) -> bool | None:
            self.follow(record)
            return observer(record, now)

        return self.inner.run(replace(task, observer=both))


def finite(value: float) -> float | None:
    """For JSON, which has no not-a-number."""
    return float(value) if np.isfinite(value) else None
