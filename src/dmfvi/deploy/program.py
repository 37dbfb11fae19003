"""The program of a node on a network: meet the neighbours, agree, fit, stop together, keep the model.

When somebody comes or goes, or has other data, the fit begins anew with who is there; a node that comes back with the
same data within the silence that others tolerate goes on from its journal as if it had only been slow.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import math
import secrets
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dmfvi.deploy.config import NodeConfig
from dmfvi.deploy.data import Data, digest, n_rows
from dmfvi.engines.base import Engine, RoundRecord, Run, Task
from dmfvi.engines.local import LocalEngine
from dmfvi.engines.net.clock import REAL, Clock
from dmfvi.engines.net.engine import NetworkEngine
from dmfvi.engines.net.epochs import NetworkNode, drive
from dmfvi.engines.net.faults import FaultyTransport
from dmfvi.engines.net.lifecycle import Lifecycle, Outcome
from dmfvi.engines.net.membership import Share
from dmfvi.engines.net.signatures import UNSIGNED, CertificateSigner, Signer
from dmfvi.engines.net.transport import Transport
from dmfvi.engines.net.zenoh import ZenohTransport
from dmfvi.network import Network
from dmfvi.progress import Advance, Pace
from dmfvi.storage import FILE_NAME
from dmfvi.storage.files import superseding, write_text
from dmfvi.storage.journal import Journal
from dmfvi.storage.models import save, save_or_keep

logger = logging.getLogger(__name__)

#: seconds between two lines of status
STATUS_EVERY = 0.25


class Status(NamedTuple):
    """The state of a node, for people."""

    node: int
    state: str  # starting, joining, agreeing on a start, fitting, waiting for others, done, left, failed
    members: list[int]
    rounds: int
    change: float
    disagreement: float
    sent_bytes: int
    refused: dict[str, int]
    time: str  # of this status
    converged: bool | None = None  # known when a fit has ended
    data: list[dict[str, Any]] | None = None  # whose data are in the result
    missing: list[dict[str, Any]] | None = None  # and whose are not
    notes: list[str] = []  # noqa: RUF012  resumed from a checkpoint, no checkpoint, models that differ
    objective: float | None = None  # the bound of the network, after its first sweep
    seconds_left: float | None = None  # an estimate, while it fits


OnStatus = Callable[[Status], None]


class Ended(NamedTuple):
    """A node's result: where it is, and what it is of."""

    path: Path
    converged: bool
    missing: list[dict[str, Any]]


def run_node(config: NodeConfig, on_status: OnStatus | None = None) -> Ended:
    """Run until this node and all it can reach are done."""
    program: NodeProgram | None = None
    transport: Transport | None = None
    with only_one(config.out), superseding(config.out / FILE_NAME) as begin:
        _report_before(config, on_status, "starting")  # replaces the last status of an earlier run
        try:
            data = config.model.read(config.data, config.reading)
            transport = ZenohTransport(
                config.node,
                config.listen,
                config.peers,
                config.identity,
                config.cluster,
                config.limits,
            )
            faults = config.faults
            link = transport if faults is None else FaultyTransport(transport, faults)
            program = NodeProgram(config, link, data, on_status)
            begin()
            return program.run()
        except BaseException as reason:
            requested = isinstance(reason, KeyboardInterrupt | SystemExit)
            state = "left" if requested else "failed"
            if isinstance(reason, KeyboardInterrupt) and program is not None:
                reason.add_note(
                    f"node {config.node} has left, the others continue without its data"
                )
            if program is None:
                _report_before(config, on_status, state)
            else:
                if requested:
                    program.node.leave()
                program.report_state(state)
            raise
        finally:
            if transport is not None:
                transport.close()


def _report_before(config: NodeConfig, on_status: OnStatus | None, state: str) -> None:
    """The status of a node that has not got its data yet."""
    if on_status is not None:
        nothing = float("nan")
        on_status(Status(config.node, state, [], 0, nothing, nothing, 0, {}, _now()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def only_one(out: Path) -> Iterator[None]:
    """Refuse a second node that would write into the same folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "is a file" if out.is_file() else f"cannot be written ({error.strerror or error})"
        raise ValueError(f"out = {out} in [node] {why}: give a directory") from error
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"another node is running with out = {out}: stop it, or give this one a folder of its own"
            ) from error
        yield


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
        self.data = data = config.model.in_agreed_order(data)
        self.on_status = on_status
        self.clock = clock
        self.reported_at = -np.inf
        self.last: RoundRecord | None = None
        self.advance, self.pace = Advance(self._tol), Pace(clock)
        self.seconds_left: float | None = None
        self.outcome: Outcome[Any] | None = None
        self.path: Path | None = None
        self.resumed: str | None = None
        self.unsaved: str | None = None  # why the result is in memory only
        self.journal: Journal | None = None
        self.state = "starting"
        config.model.check(data)
        share = Share(secrets.randbits(62), 0, self._digest(), n_rows(data))
        self.node = NetworkNode(
            config.node,
            tuple(config.peers),
            transport,
            config.model.fingerprint(data),
            int(1000 * time.time()),  # later than that of any earlier run
            config.timing,
            config.compression,
            clock,
            share,
            self._signer(),
            config.model.shared(data),
        )
        self._remember_entry()

    def run(self) -> Ended:
        """Fit with who is there until nobody comes or goes any more."""
        lifecycle = Lifecycle(
            self.node,
            self._fit_in_one_step,
            self._keep,
            self.config.enough,
            self.config.wait_seconds,
            self.report_state,
        )
        self.outcome = drive(lifecycle.steps(), self.node.listen, self._watch_joining)
        path = self._save()  # once more: somebody may have been lost while waiting
        self._forget()
        self._warn_of_missing()
        self.report_state("done")
        return Ended(path, self.outcome.result._ended_well, self.missing)

    def fit(self, network: Network) -> Any:
        """One fit in the present epoch, from the journal if it belongs to it."""
        self._write_entry()
        self.journal = Journal(
            self.config.out / "checkpoint",
            self.config.node,
            self.config.model.run_mark(self.data, f"epoch {self.node.epoch}"),
            self.config.checkpoint_every,
        )
        self.resumed = None
        try:
            if self.journal.resume():
                self.resumed = f"resumed from its checkpoint, {self.journal.where}"
                logger.info("node %d %s", self.config.node, self.resumed)
        except ValueError as reason:  # of other members, another model, or torn: begin anew
            logger.warning("node %d begins anew: %s", self.config.node, reason)
            self.journal.clear()
        several = network.n_nodes > 1
        here: Engine = NetworkEngine(self.node, self.journal) if several else LocalEngine()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.config.model.fit(self.data, network, FollowedEngine(here, self._watch))

    def _fit_in_one_step(self, network: Network) -> Generator[float, None, Any]:
        """The fit waits by itself, in the network engine."""
        yield from ()
        return self.fit(network)

    # -- what the result is of ----------------------------------------------------------

    def _digest(self) -> bytes:
        """Of data and settings: a node with others is another member."""
        mark = self.config.model.fingerprint(self.data) + digest(self.data)
        return hashlib.sha256(mark).digest()

    def _signer(self) -> Signer:
        identity = self.config.identity
        if identity is None:
            return UNSIGNED
        context = self.config.cluster.encode() + b"\0" + self.config.model.fingerprint(self.data)
        return CertificateSigner(identity.authority, identity.certificate, identity.key, context)

    @property
    def members(self) -> list[dict[str, Any]]:
        """Whose data are in the result."""
        assert self.outcome is not None
        return [
            {"node": node, "rows": share.rows, "data": share.digest.hex()}
            for node, share in sorted(self.outcome.members.items())
        ]

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Whose data are not in the result, and since when they could not be reached."""
        assert self.outcome is not None
        return [
            {"node": each.node, "why": each.why, "since": self._stamp(each.since)}
            for each in self.outcome.missing
        ]

    def _stamp(self, moment: float | None = None) -> str | None:
        """A moment of the clock as a time of day."""
        if moment is None:
            return None
        seconds = time.time() - (self.clock() - moment)
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")

    def _keep(self, outcome: Outcome[Any]) -> None:
        self.outcome = outcome
        done = "converged" if outcome.result.converged_ else "NOT converged"
        logger.info("node %d: fit ends, %s", self.config.node, done)
        try:
            self._save(save)
        except (
            OSError
        ) as reason:  # the others may still need this node: it is tried again at the end
            self.unsaved = f"the result cannot be written yet: {reason}"
            logger.warning("node %d: %s", self.config.node, self.unsaved)

    def _save(self, write: Callable[..., Path] = save_or_keep) -> Path:
        assert self.outcome is not None
        model = self.outcome.result
        model.members_, model.missing_ = self.members, self.missing
        details = self.config.model.details(self.data)
        details |= {"members": self.members, "missing": self.missing}
        self.path = write(model, self.config.out / FILE_NAME, details)
        self.unsaved = None
        return self.path

    def _warn_of_missing(self) -> None:
        if self.missing:
            who = "; ".join(_who(each) for each in self.missing)
            warnings.warn(
                f"the result lacks the data of {who} (wait_for in [node] says how many nodes to wait for)",
                UserWarning,
                stacklevel=3,
            )

    # -- status -------------------------------------------------------------------------

    @property
    def _tol(self) -> float:
        return float(self.config.model.settings.get("tol") or 1.0)

    def _watch(self, record: RoundRecord) -> None:
        if self.last is not None and record.round < self.last.round:  # the fit began anew
            self.advance, self.pace = Advance(self._tol), Pace(self.clock)
        self.seconds_left = self.pace.left(self.advance.take(record))
        self.last = record
        if self.clock() - self.reported_at > STATUS_EVERY:
            self.report_state("fitting")

    def _watch_joining(self) -> None:
        if self.clock() - self.reported_at > STATUS_EVERY:
            self.report_state(self.state)

    def report_state(self, state: str) -> None:
        """Pass the state on to whoever shows or records it."""
        record = self.last
        self.reported_at, self.state = self.clock(), state
        if self.on_status is None:
            return
        known = self.outcome is not None and state not in ("joining", "fitting")
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
                _now(),
                bool(self.outcome.result.converged_) if known and self.outcome else None,
                self.members if known else None,
                self.missing if known else None,
                self._notes(),
                record.objective if record and math.isfinite(record.objective) else None,
                self.seconds_left if state == "fitting" else None,
            )
        )

    def _notes(self) -> list[str]:
        notes = [] if self.resumed is None else [self.resumed]
        if self.journal is not None and self.journal.failure is not None:
            notes.append(self.journal.failure)
        if self.unsaved is not None:
            notes.append(self.unsaved)
        return notes + [self.node.differences[peer] for peer in sorted(self.node.differences)]

    # -- what a node remembers of itself ------------------------------------------------

    @property
    def _entry_file(self) -> Path:
        return self.config.out / "checkpoint" / "entry.json"

    def _write_entry(self) -> None:
        try:
            text = json.dumps(self.node.view.remembered())
            write_text(self._entry_file, f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")
        except OSError as reason:
            logger.warning("%s cannot be written: %s", self._entry_file, reason)

    def _remember_entry(self) -> None:
        """Come back as the same member if the data and settings are the same."""
        try:
            text, _, checksum = self._entry_file.read_text().partition("\n")
        except (OSError, ValueError):
            return
        if hashlib.sha256(text.encode()).hexdigest() != checksum.strip():
            logger.warning("%s is damaged: this node comes as a new member", self._entry_file)
            return
        try:
            same = self.node.come_back(json.loads(text))
        except (KeyError, TypeError, ValueError):
            logger.warning(
                "%s is of another version of dmfvi: this node comes as a new member",
                self._entry_file,
            )
            return
        if not same:
            logger.warning(
                "node %d: its data or settings are not those of its checkpoint: it comes as a new member and the fit "
                "begins anew for all",
                self.config.node,
            )

    def _forget(self) -> None:
        for path in sorted((self.config.out / "checkpoint").glob("*")):
            path.unlink(missing_ok=True)


def _who(missing: dict[str, Any]) -> str:
    since = f" since {missing['since']}" if missing["since"] else ""
    return f"node {missing['node']} ({missing['why']}{since})"


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
