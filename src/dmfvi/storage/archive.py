"""The file itself: one .npz with a JSON head, a few flat arrays and a SHA-256 digest over all of it; never pickled.

Reading trusts nothing: sizes are looked up in the directory of the file before memory is asked for, and whatever is
damaged, altered, foreign or of another version is refused with what was received and what to do.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.storage.files import replacing

HEAD, DIGEST = "head", "digest"
#: bytes of the JSON head, and how deep it may be nested
MOST_HEAD, MOST_DEPTH = 1 << 26, 100
#: arrays up to this many bytes are compressed, as long as all of those together stay below the second number: what a
#: small file can ask for when it is unpacked
COMPRESS_BELOW, MOST_UNPACKED = 1 << 20, 1 << 28
#: bytes of an .npy member beside its numbers
MOST_NPY_HEADER = 1 << 12
#: bytes read at a time
CHUNK = 1 << 20
#: files of former versions that had no head
FORMER = ("dmfvi-pca-posterior", "dmfvi-posterior", "dmfvi-ratings", "dmfvi-ratings-checkpoint")


class Refused(ValueError):
    """A file that can be read, and is not what was asked for."""


class FileKind(NamedTuple):
    """A file's format and version, its name in messages, and what to do with one that cannot be read."""

    format: str
    version: int
    noun: str
    remedy: str
    compressed: bool = True

    def refusal(self, path: Path, why: str) -> Refused:
        """The error for a file that cannot be read."""
        return Refused(f"{path} {why}: {self.remedy}")


def write_archive(
    path: Path, kind: FileKind, head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Path:
    """Write flat arrays under a head, whole or not at all."""
    sizes = {name: int(array.nbytes) for name, array in arrays.items()}
    said = {"format": kind.format, "version": kind.version, "arrays": sizes, **head}
    text = json.dumps(said, separators=(",", ":"))
    if len(text) > MOST_HEAD or _depth(text) > MOST_DEPTH:
        raise ValueError(
            f"{path} is not written: its head has {len(text)} bytes nested {_depth(text)} deep, at most "
            f"{MOST_HEAD} and {MOST_DEPTH} can be read"
        )
    packed = np.frombuffer(text.encode(), dtype=np.uint8)
    digest = np.frombuffer(_digest(packed, arrays), dtype=np.uint8)
    unpacked = 0
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in {HEAD: packed, DIGEST: digest, **arrays}.items():
            info = zipfile.ZipInfo(f"{name}.npy")  # without a date: equal models are equal files
            after = unpacked + array.nbytes + MOST_NPY_HEADER
            small = array.nbytes <= COMPRESS_BELOW and after <= MOST_UNPACKED
            if kind.compressed and small:
                info.compress_type, unpacked = zipfile.ZIP_DEFLATED, after
            with archive.open(info, "w", force_zip64=array.nbytes >= 1 << 31) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return path


def read_archive(path: Path, kind: FileKind) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The head and the arrays of a file of this kind."""
    with path.open("rb") as file:
        try:
            return _read(file, path, kind)
        except (Refused, MemoryError):
            raise
        except Exception as error:  # a damaged archive raises nearly anything
            raise kind.refusal(path, f"is damaged or no {kind.noun} ({error})") from error


def _read(
    file: IO[bytes], path: Path, kind: FileKind
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    def refuse(why: str) -> Refused:
        return kind.refusal(path, why)

    with zipfile.ZipFile(file) as archive:
        members = _directory(archive, file.seek(0, io.SEEK_END))
        if HEAD not in members:
            former = _former_format(archive, members)
            raise refuse(
                f"is a {former} file of a former version"
                if former
                else f"is no {kind.noun}, it holds {sorted(members)[:5]}"
            )
        if members[HEAD].file_size > MOST_HEAD + MOST_NPY_HEADER:
            raise refuse(f"has a head of {members[HEAD].file_size} bytes, at most {MOST_HEAD}")
        packed = _member(archive, members[HEAD])
        text = str(packed[0]) if packed.dtype.kind == "U" else packed.tobytes().decode()
        if _depth(text) > MOST_DEPTH:
            raise refuse(f"has a head nested {_depth(text)} deep, at most {MOST_DEPTH}")
        head = json.loads(text)
        if not isinstance(head, dict) or head.get("format") != kind.format:
            held = head.get("format") if isinstance(head, dict) else type(head).__name__
            raise refuse(f"is a {held!r} file, no {kind.format!r} file")
        if head.get("version") != kind.version:
            raise refuse(
                f"has version {head.get('version')}, this library reads version {kind.version}"
            )
        declared: dict[str, int] = head["arrays"]
        if set(members) != {HEAD, DIGEST, *declared}:
            raise refuse(f"has been altered: it holds {sorted(members)[:20]}")
        for name, size in {**declared, DIGEST: hashlib.sha256().digest_size}.items():
            if not 0 <= members[name].file_size - size <= MOST_NPY_HEADER:
                raise refuse(
                    f"has been altered: {name} takes {members[name].file_size} bytes, declared are {size}"
                )
        arrays = {name: _member(archive, members[name]) for name in declared}
        if _member(archive, members[DIGEST]).tobytes() != _digest(packed, arrays):
            raise refuse("has been altered: its digest does not match")
    return head, arrays


def _directory(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, none of them larger than what a file of this size may unpack to."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise ValueError("a member occurs twice")
    if sum(info.compress_size for info in members.values()) > size:
        raise ValueError(f"its members are larger than its {size} bytes")
    unpacked = 0
    for info in members.values():
        if info.compress_type == zipfile.ZIP_STORED:
            if info.file_size != info.compress_size:
                raise ValueError(f"the size of {info.filename} is wrong")
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            unpacked += info.file_size
        else:
            raise ValueError(f"{info.filename} is compressed in an unknown way")
    if unpacked > MOST_UNPACKED:
        raise ValueError(
            f"its {size} bytes unpack to {unpacked}, at most {MOST_UNPACKED} are compressed"
        )
    return members


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One flat array; its memory is that of the directory, whatever its own header claims."""
    content = bytearray(info.file_size)
    view, done = memoryview(content), 0
    with archive.open(info) as stream:
        while part := stream.read(CHUNK):
            view[done : done + len(part)] = part
            done += len(part)
    start = io.BytesIO(content[:MOST_NPY_HEADER])
    if np.lib.format.read_magic(start) != (1, 0):
        raise ValueError(f"{info.filename} is no array of this library")
    shape, _, dtype = np.lib.format.read_array_header_1_0(start)
    if dtype.hasobject or dtype.itemsize == 0 or len(shape) > 1:
        raise ValueError(f"{info.filename} is an array of {dtype} and shape {shape}")
    array = np.frombuffer(content, dtype=dtype, offset=start.tell())
    if shape not in ((), (len(array),)) or done != len(content):
        raise ValueError(f"{info.filename} is cut short")
    return array


def _former_format(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> str | None:
    """What a file of a former version calls itself."""
    info = members.get("format")
    if info is None or info.file_size > MOST_NPY_HEADER:
        return None
    held = str(_member(archive, info)[0])
    return held if held in FORMER else None


def _depth(text: str) -> int:
    """How deep brackets are nested, those inside of words left out."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _digest(head: NDArray[Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    digest = hashlib.sha256(head.tobytes())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f" {name} {array.dtype.str} {len(array)} ".encode())
        digest.update(array.view(np.uint8).data)
    return digest.digest()
