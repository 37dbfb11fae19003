"""Configuration of a node on a network: one TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dmfvi.deploy.kinds import DEFAULT_KIND, NETWORK_KINDS, ModelSettings
from dmfvi.engines.net.compression import COMPRESSIONS
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.faults import Faults
from dmfvi.engines.net.keys import check_identity, is_host
from dmfvi.engines.net.limits import Limits
from dmfvi.engines.net.membership import LARGEST_ID, MOST_NEIGHBOURS, MOST_NODES
from dmfvi.engines.net.zenoh import Identity, check_loopback
from dmfvi.readers.table_format import TableFormat, file_setting
from dmfvi.readers.tables import Reading, Selection
from dmfvi.storage.files import check_exists


@dataclass(frozen=True)
class NodeConfig:
    """One node."""

    node: int
    listen: str
    peers: dict[int, str]
    data: Path
    out: Path
    model: ModelSettings = field(default_factory=ModelSettings.of)
    timing: Timing = field(default_factory=Timing)
    identity: Identity | None = None
    checkpoint_every: int = 20
    wait_for: int | None = (
        None  # nodes to wait for before the first fit; None: this one and its peers
    )
    wait_seconds: float = 60.0
    compression: str = "none"  # of messages, while that suffices
    faults: Faults | None = None
    cluster: str = "dmfvi"
    limits: Limits = field(default_factory=Limits)
    reading: Reading = field(default_factory=Reading)

    @property
    def enough(self) -> int:
        """Nodes to wait for before the first fit."""
        return self.wait_for if self.wait_for is not None else 1 + len(self.peers)


def read_config(path: str | Path, insecure: bool = False) -> NodeConfig:
    """Read and check a node's file; paths in it are relative to it."""
    file = Path(path)
    check_exists(file)
    try:
        content = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from error
    return config_of(content, file, insecure)


def config_of(content: Mapping[str, Any], file: Path, insecure: bool = False) -> NodeConfig:
    """A node's settings from the tables of a TOML file."""
    known = {"node", "peers", "model", "data", "timing", "tls", "faults", "limits"}
    _no_others(content, known, file, "the file")
    for name in content:
        if not isinstance(content[name], Mapping):
            raise ValueError(f"{file}: {name} must be a table [{name}], received {content[name]!r}")
    node = dict(content.get("node", {}))
    names = {"id", "listen", "data", "out", "wait_for", "wait_seconds", "cluster"}
    names |= {"checkpoint_every", "compression"}
    _no_others(node, names, file, "[node]")
    for name in ("id", "listen", "data"):
        if name not in node:
            raise ValueError(f"{file}: [node] needs {name}")
    _check_kinds(node, NODE_KINDS, file, "[node]")
    _check_ranges(node, NODE_RANGES, file, "[node]")
    number = node["id"]
    if not CLUSTER.fullmatch(node.get("cluster", "dmfvi")):
        raise ValueError(
            f"{file}: cluster in [node] must be 1 to 64 letters, digits, - or _, received {node['cluster']!r}"
        )
    _check_address(node["listen"], file, "listen in [node]")
    if node.get("compression", "none") not in COMPRESSIONS:
        raise ValueError(
            f"{file}: compression in [node] must be one of {list(COMPRESSIONS)}, "
            f"received {node['compression']!r}"
        )
    peers = _peers(content.get("peers", {}), number, file)
    own = [peer for peer, address in peers.items() if address == node["listen"]]
    if own:
        raise ValueError(
            f"{file}: [peers] gives node {own[0]} the address {node['listen']} at which node {number} itself listens"
        )
    here = file.parent
    identity = _identity(content.get("tls"), here, file, number)
    if identity is None:
        if not insecure:
            raise ValueError(
                f"{file} has no [tls] table: make certificates with dmfvi keys, or say --insecure "
                "for a trial on this machine"
            )
        for address in (node["listen"], *peers.values()):
            check_loopback(str(address))
    wait_for = node.get("wait_for")
    return NodeConfig(
        node=number,
        listen=str(node["listen"]),
        peers=peers,
        data=here / node["data"],
        out=here / node.get("out", f"node-{number}"),
        model=_model(content.get("model", {}), file),
        timing=_made(Timing, content.get("timing", {}), file, "[timing]"),
        identity=identity,
        checkpoint_every=int(node.get("checkpoint_every", 20)),
        wait_for=None if wait_for is None else int(wait_for),
        wait_seconds=float(node.get("wait_seconds", 60.0)),
        compression=str(node.get("compression", "none")),
        faults=_made(Faults, content["faults"], file, "[faults]") if "faults" in content else None,
        cluster=str(node.get("cluster", "dmfvi")),
        limits=_made(Limits, content.get("limits", {}), file, "[limits]"),
        reading=_reading(content.get("data", {}), file),
    )


def _reading(table: Mapping[str, Any], file: Path) -> Reading:
    """How the node's file of data is read."""
    lists = {"missing", "columns", "drop", "id"}
    _no_others(
        table, {"header", "separator", "decimal", "percent", "encoding"} | lists, file, "[data]"
    )
    kinds: dict[str, tuple[type, ...]] = {"header": (bool,), "percent": (bool,)}
    kinds |= dict.fromkeys(("separator", "decimal", "encoding"), (str,)) | dict.fromkeys(
        lists, (list,)
    )
    _check_kinds(table, kinds, file, "[data]")
    for name in lists:
        for each in table.get(name, ()):
            if type(each) not in ((str,) if name == "missing" else (str, int)):
                raise ValueError(
                    f"{file}: {name} in [data] must be a list of names, received {each!r} in it"
                )
    try:
        how = TableFormat(
            table.get("header"),
            table.get("separator"),
            table.get("decimal", "."),
            tuple(table.get("missing", ())),
            table.get("percent", False),
            table.get("encoding", "utf-8"),
            file_setting,
        )
    except ValueError as error:
        raise ValueError(f"{file}, [data]: {error}") from error
    chosen = {name: tuple(table.get(name, ())) for name in ("columns", "drop", "id")}
    return Reading(how, Selection(**chosen))


def _model(table: Mapping[str, Any], file: Path) -> ModelSettings:
    rest = dict(table)
    kind = rest.pop("kind", DEFAULT_KIND)
    if not isinstance(kind, str) or kind not in NETWORK_KINDS:
        raise ValueError(
            f"{file}: kind in [model] must be one of {sorted(NETWORK_KINDS)}, received {kind!r}"
        )
    try:
        return ModelSettings.of(kind, **rest)
    except ValueError as error:
        raise ValueError(f"{file}, [model]: {error}") from error


def _peers(table: Mapping[str, Any], node: int, file: Path) -> dict[int, str]:
    peers: dict[int, str] = {}
    for key, address in table.items():
        if not (key.isascii() and key.isdigit()) or len(key) > 10 or int(key) > LARGEST_ID:
            raise ValueError(
                f"{file}: [peers] maps node ids (0 to {LARGEST_ID}) to addresses, received {key!r}"
            )
        if int(key) in peers:
            raise ValueError(f"{file}: [peers] names node {int(key)} twice")
        if int(key) == node:
            raise ValueError(f"{file}: [peers] names node {node} itself")
        _check_address(address, file, f"peer {key}")
        if address in peers.values():
            raise ValueError(f"{file}: [peers] gives {address} to two nodes")
        peers[int(key)] = address
    if len(peers) > MOST_NEIGHBOURS:
        raise ValueError(f"{file}: [peers] has {len(peers)} nodes, at most {MOST_NEIGHBOURS}")
    return peers


def _identity(
    table: Mapping[str, Any] | None, here: Path, file: Path, node: int
) -> Identity | None:
    if table is None:
        return None
    _no_others(table, {"authority", "certificate", "key"}, file, "[tls]")
    lacking = [name for name in ("authority", "certificate", "key") if name not in table]
    if lacking:
        raise ValueError(f"{file}: [tls] needs {', '.join(lacking)}")
    identity = Identity(here / table["authority"], here / table["certificate"], here / table["key"])
    identity.check()
    check_identity(node, identity.authority, identity.certificate)
    return identity


def _made(kind: Any, table: Mapping[str, Any], file: Path, where: str) -> Any:
    allowed = {f.name: f.type for f in fields(kind)}
    _no_others(table, set(allowed), file, where)
    _check_kinds(table, {name: TYPES[str(text)] for name, text in allowed.items()}, file, where)
    _check_ranges(table, RANGES[where], file, where)
    return kind(**table)


#: what the words of an annotation allow in a file
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
}
NODE_KINDS: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "listen": (str,),
    "data": (str,),
    "out": (str,),
    "cluster": (str,),
    "compression": (str,),
    "wait_for": (int,),
    "checkpoint_every": (int,),
    "wait_seconds": (int, float),
}


#: smallest and largest value of every number; waits of more than a day are mistakes
DAY = 86400.0
NODE_RANGES: dict[str, tuple[float, float]] = {
    "id": (0, LARGEST_ID),
    "wait_for": (1, MOST_NODES),
    "checkpoint_every": (1, 1_000_000),
    "wait_seconds": (0.1, 7 * DAY),
}
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "[timing]": {
        "patience": (0.001, DAY),
        "silence": (0.1, DAY),
        "settle": (0.01, DAY),
        "linger": (0.0, 7 * DAY),
        "heartbeat": (0.01, 3600.0),
    },
    "[faults]": {
        "loss": (0.0, 0.999),
        "delay": (0.0, DAY),
        "duplicates": (0.0, 0.999),
        "seed": (0, 2**63),
        "latency": (0.0, DAY),
    },
    "[limits]": {
        "frame_bytes": (10_000, 2**31 - 1),
        "frames_per_second": (10, 1_000_000),
        "bytes_per_second": (10_000, 2**40),
        "queued_frames": (8, 100_000),
    },
}
#: names of clusters: they are part of Zenoh's keys
CLUSTER = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _check_ranges(
    table: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]], file: Path, where: str
) -> None:
    """NaN is in no range."""
    for name, (least, most) in ranges.items():
        if name in table and not least <= table[name] <= most:
            raise ValueError(
                f"{file}: {name} in {where} must lie between {least:g} and {most:g}, received {table[name]!r}"
            )


def _check_kinds(
    table: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]], file: Path, where: str
) -> None:
    for name, value in table.items():
        wanted = kinds.get(name)
        if wanted is None:
            continue
        wrong_truth = isinstance(value, bool) and bool not in wanted
        if wrong_truth or not isinstance(value, wanted):
            names = " or ".join(kind.__name__ for kind in wanted)
            raise ValueError(f"{file}: {name} in {where} must be {names}, received {value!r}")


def _check_address(address: Any, file: Path, what: str) -> None:
    host, _, port = str(address).rpartition(":")
    proper = isinstance(address, str) and is_host(host) and port.isascii() and port.isdigit()
    if not proper or len(port) > 5 or not 0 < int(port) < 65536:
        raise ValueError(
            f"{file}: {what} needs host:port, a name or address and a port from 1 to 65535, received {address!r}"
        )


def _no_others(table: Mapping[str, Any], known: set[str], file: Path, where: str) -> None:
    strange = sorted(set(table) - known)
    if strange:
        raise ValueError(f"{file}: {where} has unknown {strange}, known are {sorted(known)}")
