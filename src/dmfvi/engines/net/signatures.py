"""Signatures of membership entries: only a node itself can announce what it holds, from whom it receives, and that it leaves.

An entry travels over several hops, so the link it arrives by proves nothing. Its owner signs it with the key of its
certificate, and the certificate, issued by the cluster's authority for that node's name, travels with it.
"""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from dmfvi.engines.net.keys import common_name

#: certificates that were checked and are not checked again
MOST_KNOWN = 4096
#: certificates from a node's own to the one that the authority has issued
LONGEST_CHAIN = 4


class Signer(Protocol):
    """Signs for one node, and checks the signatures of all."""

    @property
    def certificate(self) -> bytes:
        """What others check the signatures with."""

    def sign(self, content: bytes) -> bytes:
        """The signature of this node."""

    def believes(self, node: int, content: bytes, signature: bytes, certificate: bytes) -> bool:
        """Whether that node has signed the content."""


class Unsigned:
    """Without certificates, on one machine: everything is believed."""

    certificate = b""

    def sign(self, content: bytes) -> bytes:
        """Nothing."""
        return b""

    def believes(self, node: int, content: bytes, signature: bytes, certificate: bytes) -> bool:
        """Always."""
        return True


UNSIGNED = Unsigned()


class CertificateSigner:
    """Signs with the key of a node's certificate (ECDSA or RSA, SHA-256).

    ``context`` is signed along: an entry of another cluster or another model is not accepted here.
    """

    def __init__(self, authority: Path, certificate: Path, key: Path, context: bytes = b"") -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        self.authorities = x509.load_pem_x509_certificates(authority.read_bytes())
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
        encoding = serialization.Encoding.DER
        self.certificate = b"".join(each.public_bytes(encoding) for each in chain)
        self.key: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        if self.key.public_key() != chain[0].public_key():
            raise ValueError(f"{key} is not the key of {certificate}: take both from one issue")
        self.context = b"dmfvi membership entry\0" + context + b"\0"
        self.known: dict[tuple[int, bytes], Any] = {}

    def sign(self, content: bytes) -> bytes:
        """The signature of this node."""
        return bytes(self.key.sign(self.context + content, *_scheme(self.key.public_key())))

    def believes(self, node: int, content: bytes, signature: bytes, certificate: bytes) -> bool:
        """Whether that node has signed the content, by a certificate of this cluster's authority that is valid now."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.x509 import ExtensionNotFound

        try:
            public = self._public_key(node, certificate)
            public.verify(signature, self.context + content, *_scheme(public))
        except (InvalidSignature, ExtensionNotFound, ValueError, TypeError):
            return False
        return True

    def _public_key(self, node: int, certificate: bytes) -> Any:
        now = dt.datetime.now(dt.UTC)
        found = self.known.get((node, certificate))
        if found is None:
            found = self._checked(node, certificate)
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[node, certificate] = found
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise ValueError("expired")
        return found.public_key()

    def _checked(self, node: int, certificate: bytes) -> Any:
        """The node's certificate, issued by the authority, or by others that it has issued."""
        from cryptography import x509

        chain = [x509.load_der_x509_certificate(part) for part in _split(certificate)]
        leaf, now = chain[0], dt.datetime.now(dt.UTC)
        names = leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        if not names or names[0].value != common_name(node):
            raise ValueError("another node's certificate")
        self._check_root(chain[-1])  # first: whoever made the chain up has not got this one
        for below, above in pairwise(chain):
            basic = above.extensions.get_extension_for_class(x509.BasicConstraints).value
            if not basic.ca or not above.not_valid_before_utc <= now <= above.not_valid_after_utc:
                raise ValueError("issued by no authority that is valid now")
            below.verify_directly_issued_by(above)
        return leaf

    def _check_root(self, highest: Any) -> None:
        from cryptography.exceptions import InvalidSignature

        for authority in self.authorities:
            try:
                highest.verify_directly_issued_by(authority)
                return
            except (InvalidSignature, ValueError, TypeError):
                continue
        raise ValueError("another authority's certificate")


def _scheme(public: Any) -> tuple[Any, ...]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

    if isinstance(public, ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(public, rsa.RSAPublicKey):
        return padding.PKCS1v15(), hashes.SHA256()
    return ()  # Ed25519 and Ed448 sign as they are


def _split(certificates: bytes) -> list[bytes]:
    """DER certificates one after the other: each begins with 30 82 and its length in two bytes."""
    parts, at = [], 0
    while at < len(certificates):
        if certificates[at : at + 2] != b"\x30\x82" or len(certificates) < at + 4:
            raise ValueError("no certificate")
        size = 4 + int.from_bytes(certificates[at + 2 : at + 4], "big")
        parts.append(certificates[at : at + size])
        at += size
    if not 1 <= len(parts) <= LONGEST_CHAIN:
        raise ValueError(f"a chain of {len(parts)} certificates")
    return parts
