"""A small certificate authority for a cluster: one CA, one certificate a node (PEM, EC P-256)."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmfvi.extras import lacking
from dmfvi.storage.files import replacing

CA_DAYS, NODE_DAYS = 3650, 365
CA_KEY, CA_CERTIFICATE = "ca.key", "ca.pem"


def init_authority(folder: str | Path, name: str = "dmfvi") -> Path:
    """Make a CA: ``ca.key`` (keep it offline) and ``ca.pem`` (give it to every node)."""
    x509, hashes, ec, _ = _cryptography()
    target = Path(folder)
    if (target / CA_KEY).exists():
        raise ValueError(
            f"{target / CA_KEY} exists: a second CA would shut out the first one's nodes"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name} CA")])
    now = dt.datetime.now(dt.UTC)
    usage = {
        "digital_signature": False,
        "content_commitment": False,
        "key_encipherment": False,
        "data_encipherment": False,
        "key_agreement": False,
        "key_cert_sign": True,
        "crl_sign": True,
        "encipher_only": False,
        "decipher_only": False,
    }
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(target, CA_KEY, CA_CERTIFICATE, key, certificate)
    return target / CA_CERTIFICATE


def issue(
    authority: str | Path,
    node: int,
    hosts: Sequence[str],
    out: str | Path | None = None,
    valid: dt.timedelta = dt.timedelta(days=NODE_DAYS),
    replace: bool = False,
) -> tuple[Path, Path]:
    """Certificate and key of a node, ``node-3.pem`` and ``node-3.key``; ``hosts`` are its names and addresses."""
    x509, hashes, ec, serialization = _cryptography()
    folder = Path(authority)
    if not (folder / CA_KEY).exists():
        raise FileNotFoundError(f"{folder / CA_KEY} does not exist: run dmfvi keys init first")
    if not 0 <= node < 2**32:
        raise ValueError(
            f"a node's id must be a whole number from 0 to {2**32 - 1}, received {node}"
        )
    wrong = [host for host in hosts if not is_host(host)]
    if wrong or not hosts:
        raise ValueError(
            f"a node's certificate needs host names or addresses, received {wrong or 'none'}"
        )
    target = Path(out) if out is not None else folder
    known = target / f"{common_name(node)}.pem"
    if known.exists() and not replace:
        raise ValueError(
            f"{known} exists: a second certificate for node {node} would let two machines run as one; give another "
            f"--node, or --replace if the first one is no longer used"
        )
    ca_key: Any = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    ca = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    if now + valid > ca.not_valid_after_utc:
        raise ValueError(
            f"the certificate would be valid until {now + valid:%Y-%m-%d}, its authority only until "
            f"{ca.not_valid_after_utc:%Y-%m-%d}: ask for fewer --days"
        )
    both = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name(node))]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - dt.timedelta(minutes=5))
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_host(x509, host) for host in hosts]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    _write(target, f"{common_name(node)}.key", f"{common_name(node)}.pem", key, certificate)
    if target != folder:  # a node needs the authority's certificate too
        with replacing(target / CA_CERTIFICATE) as file:
            file.write((folder / CA_CERTIFICATE).read_bytes())
    return target / f"{common_name(node)}.pem", target / f"{common_name(node)}.key"


def check_identity(node: int, authority: Path, certificate: Path) -> None:
    """Refuse a certificate that other nodes would not believe: another node's, another authority's, or expired."""
    x509 = _cryptography()[0]
    try:
        shown, ca = (
            x509.load_pem_x509_certificate(path.read_bytes()) for path in (certificate, authority)
        )
    except ValueError as error:
        raise ValueError(f"{certificate} or {authority} is no certificate: {error}") from error
    names = shown.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    name = str(names[0].value) if names else "nobody"
    if name != common_name(node):
        raise ValueError(
            f"{certificate} is for {name}, this is node {node}: dmfvi keys issue makes one with --node {node}"
        )
    try:
        if (
            shown.issuer == ca.subject
        ):  # there may be authorities in between, which only TLS looks at
            shown.verify_directly_issued_by(ca)
    except Exception as error:  # a wrong name, a wrong kind of key, a wrong signature
        raise ValueError(
            f"{certificate} was not issued by {authority}: take both from one authority"
        ) from error
    now = dt.datetime.now(dt.UTC)
    if not shown.not_valid_before_utc <= now <= shown.not_valid_after_utc:
        raise ValueError(
            f"{certificate} is valid from {shown.not_valid_before_utc:%Y-%m-%d} to "
            f"{shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, not now: dmfvi keys issue makes a new one"
        )


#: a label of a host name: letters, digits and hyphens, the last two not at its ends
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def is_host(text: str) -> bool:
    """Whether it can be the name or the address of a machine."""
    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
        return True
    except ValueError:
        labels = text.removesuffix(".").split(".")
        numeric = labels[-1].isdigit()  # an address that is none
        return len(text) <= 253 and not numeric and all(LABEL.fullmatch(part) for part in labels)


def common_name(node: int) -> str:
    """The name in a node's certificate."""
    return f"node-{node}"


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(folder: Path, key_name: str, certificate_name: str, key: Any, certificate: Any) -> None:
    _, _, _, serialization = _cryptography()
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with replacing(folder / key_name) as file:
        os.fchmod(file.fileno(), 0o600)  # before the secret is in it
        file.write(secret)
    with replacing(folder / certificate_name) as file:
        file.write(certificate.public_bytes(serialization.Encoding.PEM))


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise lacking("dmfvi keys", "the cryptography package", "net") from error
    return x509, hashes, ec, serialization
