"""Checkpoints of nodes and ranks, as structured files.

A run consists of phases (agreeing on a start, then fitting), each one call of an engine. The journal of a node holds
what finished phases gave and where the current one is, so that a node that comes back repeats nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmfvi.node import NodeState
from dmfvi.storage.archive import FileKind
from dmfvi.storage.structured import read_structured, write_structured

logger = logging.getLogger(__name__)

#: written often and read seldom: not compressed
CHECKPOINT = FileKind(
    "dmfvi-checkpoint", 3, "checkpoint", "remove it and begin the fit again", compressed=False
)


def save_checkpoint(path: Path, content: Any, fingerprint: str) -> Path:
    """Write ``content`` with the fingerprint of what it belongs to."""
    return write_structured(path, content, CHECKPOINT, fingerprint)


def load_checkpoint(path: Path, fingerprint: str) -> Any:
    """Read what ``save_checkpoint`` wrote; a torn, altered or foreign file is refused with the reason."""
    return read_structured(path, CHECKPOINT, fingerprint)


@dataclass
class Journal:
    """One node's memory on disk: finished phases, and the current one every ``every`` rounds.

    The last ``keep`` of a phase are kept, and those of the phase before: nodes stop some rounds apart, and one that
    has finished may have to go back to where the others are.
    """

    folder: Path
    node: int
    fingerprint: str
    every: int = 20
    keep: int = 2
    finished: dict[int, Any] = field(default_factory=dict)
    snapshots: list[tuple[int, int, NodeState]] = field(default_factory=list)  # phase, round, state
    failure: str | None = None  # why there is no checkpoint on disk

    @property
    def path(self) -> Path:
        """The node's file."""
        return self.folder / f"node-{self.node}.npz"

    def resume(self) -> bool:
        """Read what is there; False if there is nothing."""
        if not self.path.exists():
            return False
        self.finished, self.snapshots = load_checkpoint(self.path, self.fingerprint)
        return True

    @property
    def where(self) -> str:
        """The newest thing that it remembers."""
        newest = max(((phase, number) for phase, number, _ in self.snapshots), default=None)
        if newest is None:
            return f"phase {len(self.finished)}"
        return f"phase {newest[0]}, round {newest[1]}"

    def due(self, round_number: int) -> bool:
        """Whether this round is one to remember."""
        return round_number % self.every == 0

    def note(self, phase: int, round_number: int, state: NodeState) -> None:
        """Remember where a phase is; the shard is not written, it is the node's own data."""
        before = [known for known in self.snapshots if known[0] == phase - 1]
        here = [known for known in self.snapshots if known[0] == phase]
        new = (phase, round_number, state._replace(shard=None))
        self.snapshots = [*before, *here[1 - self.keep :], new]
        self._write()

    def finish(self, phase: int, belief: Any) -> None:
        """Remember what a phase gave."""
        self.finished = {**self.finished, phase: belief}
        self.snapshots = [known for known in self.snapshots if known[0] == phase]
        self._write()

    def at(self, phase: int, round_number: int) -> NodeState | None:
        """The state of that phase and round, if it is remembered."""
        for known_phase, known_round, state in self.snapshots:
            if (known_phase, known_round) == (phase, round_number):
                return state
        return None

    def rounds(self, phase: int) -> list[int]:
        """Rounds of a phase that are remembered."""
        return [number for known, number, _ in self.snapshots if known == phase]

    def clear(self) -> None:
        """The run is over: nothing is left to resume."""
        self.path.unlink(missing_ok=True)
        for torn in self.folder.glob("*.part"):  # of a write that was killed
            torn.unlink(missing_ok=True)

    def _write(self) -> None:
        """A disk that is full or cannot be written to does not end the fit: it continues in memory and says so."""
        try:
            save_checkpoint(self.path, (self.finished, self.snapshots), self.fingerprint)
        except OSError as reason:
            if self.failure is None:
                logger.warning("%s", _unwritten(self.path, reason))
            self.failure = _unwritten(self.path, reason)
        else:
            self.failure = None


def _unwritten(path: Path, reason: OSError) -> str:
    return (
        f"no checkpoint: {path} cannot be written ({reason.strerror or reason}); the fit goes on in memory and could "
        f"not be resumed. Free space on the disk of {path.parent}, or make it writable"
    )
