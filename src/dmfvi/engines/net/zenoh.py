"""Bytes between neighbours over Zenoh: peer to peer, mutual TLS, nothing discovered by itself."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmfvi.engines.net.keys import common_name
from dmfvi.engines.net.limits import Inbox, Limits
from dmfvi.extras import lacking

#: microseconds that a frame may wait for a busy link before it is dropped: a frozen neighbour must not hold a node up
PATIENT_DROP = {"wait_before_drop": 100_000, "max_wait_before_drop_fragments": 500_000}


@dataclass(frozen=True)
class Identity:
    """Files that prove a node's identity."""

    authority: Path
    certificate: Path
    key: Path

    def check(self) -> None:
        """Refuse files that are not there."""
        for name in ("authority", "certificate", "key"):
            path = getattr(self, name)
            if not path.is_file():
                raise FileNotFoundError(f"tls {name} {path} does not exist: see dmfvi keys")


class ZenohTransport:
    """One Zenoh session in peer mode.

    Scouting by multicast and gossip and shared memory are off: a node connects only to the addresses it is given. With an
    identity all links are mutual TLS, and a neighbour may publish under its own name only.
    """

    def __init__(
        self,
        node: int,
        listen: str,
        peers: Mapping[int, str],
        identity: Identity | None,
        cluster: str = "dmfvi",
        limits: Limits | None = None,
    ) -> None:
        zenoh = _zenoh()
        if identity is None:
            for address in (listen, *peers.values()):
                check_loopback(address)
        else:
            identity.check()
        self.inbox = Inbox(peers, limits or Limits())
        prefix = f"dmfvi/{cluster}/from"
        settings = _config(listen, peers, identity, prefix, self.inbox.limits)
        config = zenoh.Config.from_json5(json.dumps(settings))
        try:
            self.session = zenoh.open(config)
        except Exception as error:  # its own class, with the position in its source
            raise OSError(
                f"node {node} cannot listen on {listen} ({str(error).split(' at ')[0]}): the address must be "
                "one of this machine's and free, and certificate and key must belong together"
            ) from error
        self.publisher = self.session.declare_publisher(
            f"{prefix}/{node}",
            congestion_control=zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.REAL_TIME,
        )
        self.subscribers = [
            self.session.declare_subscriber(f"{prefix}/{peer}", self._reader(peer))
            for peer in peers
        ]

    def send(self, data: bytes) -> None:
        self.publisher.put(data)

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        return self.inbox.get(timeout)

    def close(self) -> None:
        self.session.close()

    def _reader(self, peer: int) -> Callable[[Any], None]:
        def read(sample: Any) -> None:
            payload = sample.payload
            if self.inbox.admits(peer, len(payload)):  # before it is copied
                self.inbox.put(peer, bytes(payload.to_bytes()))

        return read


def check_loopback(address: str) -> None:
    """Plain text is for this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    local = host == "localhost"
    if not local:
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
    if not local:
        raise ValueError(
            f"{address} is not on this machine: without certificates nodes connect on loopback only"
        )


def _config(
    listen: str,
    peers: Mapping[int, str],
    identity: Identity | None,
    prefix: str,
    limits: Limits,
) -> dict[str, Any]:
    scheme = "tcp" if identity is None else "tls"
    config: dict[str, Any] = {
        "mode": "peer",
        "listen": {"endpoints": [f"{scheme}/{listen}"]},
        "connect": {
            "endpoints": [f"{scheme}/{address}" for address in peers.values()],
            "timeout_ms": 0,  # neighbours may come later; keep trying in the background
            "exit_on_failure": False,
            "retry": {
                "period_init_ms": 200,
                "period_max_ms": 2000,
                "period_increase_factor": 1.5,
            },
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "shared_memory": {"enabled": False},
            "link": {
                "tx": {"queue": {"congestion_control": {"drop": PATIENT_DROP}}},
                # a longer message is refused while its fragments arrive; Zenoh's own head needs some space too
                "rx": {"max_message_size": limits.frame_bytes + 4096},
            },
        },
    }
    if identity is not None:
        config["transport"]["link"] |= {
            "protocols": ["tls"],
            "tls": {
                "root_ca_certificate": str(identity.authority),
                "listen_certificate": str(identity.certificate),
                "listen_private_key": str(identity.key),
                "connect_certificate": str(identity.certificate),
                "connect_private_key": str(identity.key),
                "enable_mtls": True,
                "verify_name_on_connect": True,
                "close_link_on_expiration": True,
            },
        }
        config["access_control"] = _access(peers, prefix)
    return config


def _access(peers: Mapping[int, str], prefix: str) -> dict[str, Any]:
    """A neighbour's certificate lets it publish under its own name, and nothing else."""
    reading = {
        "id": "subscriptions",
        "permission": "allow",
        "flows": ["ingress", "egress"],
        "messages": ["declare_subscriber"],
        "key_exprs": [f"{prefix}/*"],
    }
    sending = {
        "id": "own frames",
        "permission": "allow",
        "flows": ["egress"],
        "messages": ["put"],
        "key_exprs": [f"{prefix}/*"],
    }
    rules = [reading, sending]
    subjects = []
    policies = []
    for peer in peers:
        rules.append(
            {
                "id": f"frames of {peer}",
                "permission": "allow",
                "flows": ["ingress"],
                "messages": ["put"],
                "key_exprs": [f"{prefix}/{peer}"],
            }
        )
        subjects.append({"id": f"peer {peer}", "cert_common_names": [common_name(peer)]})
        policies.append(
            {
                "rules": ["subscriptions", "own frames", f"frames of {peer}"],
                "subjects": [f"peer {peer}"],
            }
        )
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def require() -> None:
    """Refuse with what to do where the optional package is missing."""
    _zenoh()


def _zenoh() -> Any:
    """The optional package."""
    try:
        import zenoh
    except ImportError as error:
        raise lacking("a node on a network", "Zenoh", "net") from error
    return zenoh
