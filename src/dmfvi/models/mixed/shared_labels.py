"""Labels of groups that occur at several sites, found by digests.

Every site sends a digest of each of its labels, filled up to a power of two with others that stand for none. So sites learn how many groups another has
(to a factor of two) and which labels they have in common, and can try whether another site has a label that they guess; labels are not sent.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from dmfvi.inference.session import Session
from dmfvi.models.regression.columns import plain_level

#: bytes of a digest: a million labels have two alike with a probability of 4e-13
DIGEST_SIZE = 10
#: text that is a number to people, too: 007 and 7.0, not 1_11 or 1e3
PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
#: digests that a site sends at least
FEWEST_DIGESTS = 16
#: labels that an error names
NAMED = 3


class CommonLabels(NamedTuple):
    """Labels that several sites have: their numbers, the same at all sites, for each site of this process; how many; sites beside the first of each."""

    numbers: list[dict[Any, int]]
    n_shared: int
    repeated: int


def common_labels(
    session: Session, labels: Sequence[Collection[Any]], *, refuse: bool
) -> CommonLabels:
    """Which labels of each site of this process other sites have, too; with ``refuse`` a ValueError at all sites if there is any.

    A digest of two labels of one site ("1" and "01") is sent twice, so that all sites know that they cannot tell which of them is shared.
    """
    own = [_by_digest(part) for part in labels]
    sent = [_padded([d for d, names in part.items() for _ in names[:2]]) for part in own]
    received = session.collective.gather(sent)
    holders: dict[bytes, list[int]] = {}
    for site, vector in enumerate(received):
        whole = np.rint(vector).astype(np.uint8).tobytes()
        for at in range(0, len(whole), DIGEST_SIZE):
            holders.setdefault(whole[at : at + DIGEST_SIZE], []).append(site)
    shared = {d: sorted(set(sites)) for d, sites in holders.items() if len(set(sites)) > 1}
    if not refuse:
        _refuse_twice({d: sites for d, sites in holders.items() if d in shared}, own)
    if not refuse or not shared:
        order = {digest: number for number, digest in enumerate(sorted(shared))}
        numbers = [
            {name: order[d] for d, names in part.items() if d in order for name in names}
            for part in own
        ]
        return CommonLabels(numbers, len(order), sum(len(s) - 1 for s in shared.values()))
    known = {d: names[-1] for part in own for d, names in part.items() if d in shared}
    named = sorted(map(repr, known.values()))[:NAMED]
    which = f", as {' and '.join(named)}" if named else ""
    sites = next(iter({d: s for d, s in shared.items() if not known or d in known}.values()))
    raise ValueError(
        f"groups has {len(shared)} label{'s' if len(shared) > 1 else ''} at more than one site{which} "
        f"(sites {' and '.join(map(str, sites[:NAMED]))}). If these are different groups, as wards numbered "
        "by each hospital, say nested=True; if they are the same, say across_sites=True: sums over rows of each such group are then exchanged"
    )


def _by_digest(labels: Collection[Any]) -> dict[bytes, list[Any]]:
    """Labels of a site by their digest: mostly one."""
    made: dict[bytes, list[Any]] = {}
    for label in labels:
        if label is not None:
            made.setdefault(_digest(_common_form(label)), []).append(label)
    return made


def _refuse_twice(holders: dict[bytes, list[int]], own: Sequence[dict[bytes, list[Any]]]) -> None:
    """Refuse, at all sites, two labels of one site that stand for the same group at another."""
    for digest in sorted(holders):
        sites = holders[digest]
        twice = sorted({site for site in sites if sites.count(site) > 1})
        if not twice:
            continue
        names = {repr(name) for part in own for name in part.get(digest, ())}
        which = f" ({' and '.join(sorted(names)[:NAMED])})" if names else ""
        others = " and ".join(str(site) for site in sorted(set(sites) - {twice[0]})[:NAMED])
        raise ValueError(
            f"groups has two labels at site {twice[0]} that differ in spelling or type only{which}, and site {others} has the group, too: write each "
            "group in one way, or say nested=True if groups of different sites are different"
        )


def check_one_form(labels: Sequence[Collection[Any]]) -> None:
    """Refuse labels of sites in one position that are the same but for their type, as 1 at one and "1" at another."""
    forms: dict[str, dict[Any, int]] = {}
    for site, part in enumerate(labels):
        for label in part:
            known = forms.setdefault(_common_form(label), {})
            other = next(
                (k for k, position in known.items() if k != label and position != site), label
            )
            if other != label:
                raise ValueError(
                    f"groups has the label {other!r} at site {known[other]} and {label!r} at site {site}: write the same group in the same way, or say "
                    "nested=True if groups of different sites are different"
                )
            known.setdefault(label, site)


def _common_form(label: Any) -> str:
    """The same text for 1, 1.0, True, "1" and "01", and for a date of any type."""
    if isinstance(label, np.datetime64):
        label = label.astype("datetime64[us]").item()
    if hasattr(label, "isoformat"):
        return str(label.isoformat()).removesuffix("T00:00:00")
    if isinstance(label, str) and not PLAIN_NUMBER.fullmatch(label.strip()):
        return label.strip()
    for number in (int, float):
        try:
            return str(plain_level(number(label)) if number is float else _whole(label))
        except (TypeError, ValueError, OverflowError):
            continue
    return str(label).strip()


def _whole(label: Any) -> int:
    """A whole number of any size; one with decimals is none."""
    if isinstance(label, float) and not label.is_integer():
        raise ValueError(label)
    return int(label)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=DIGEST_SIZE, person=b"dmfvi-groups").digest()


def _padded(digests: Collection[bytes]) -> np.ndarray:
    """Sorted digests as numbers, and random ones that stand for no label; the others cannot tell which."""
    size = max(FEWEST_DIGESTS, 1 << max(len(digests) - 1, 0).bit_length())
    whole = list(digests)
    while len(whole) < size:
        whole.append(secrets.token_bytes(DIGEST_SIZE))
    return np.frombuffer(b"".join(sorted(whole)), dtype=np.uint8).astype(np.float64)
