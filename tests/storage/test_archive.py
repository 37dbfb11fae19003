"""Files that are damaged, altered, hostile, foreign or of a former version are refused, with what to do."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmfvi.storage import archive
from dmfvi.storage.archive import FileKind
from dmfvi.storage.structured import read_structured, write_structured

KIND = FileKind("dmfvi-test", 3, "test file", "do it again")
CONTENT = {"a": np.arange(50.0), "b": (1, [2.5, None], {3: "x"}), "c": np.array(["x", "yy"])}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_structured(tmp_path / "a.npz", CONTENT, KIND)


def members(file: Path) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as held:
        return dict(held)


def refused(file: Path, words: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.npz .*{words}.*: do it again"):
        read_structured(file, KIND)


def test_what_is_written_comes_back(file: Path) -> None:
    np.testing.assert_equal(read_structured(file, KIND), CONTENT)


@pytest.mark.parametrize("compressed", [True, False])
def test_every_flipped_byte_and_every_cut_is_noticed(tmp_path: Path, compressed: bool) -> None:
    """Or lies where nothing is written: between members."""
    kind = KIND._replace(compressed=compressed)
    file = write_structured(tmp_path / "a.npz", CONTENT, kind)
    whole = file.read_bytes()
    for at in range(0, len(whole), 3):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            back = read_structured(file, kind)
        except ValueError as error:
            assert "do it again" in str(error)  # noqa: PT017
        else:
            np.testing.assert_equal(back, CONTENT)
        file.write_bytes(whole[:at])
        refused(file, "is damaged or no test file")


@pytest.mark.parametrize("value", [np.nan, -1.0, 1e300])
def test_other_numbers_are_noticed(file: Path, value: float) -> None:
    held = members(file)
    name = next(key for key, array in held.items() if array.dtype == np.float64)
    held[name][3] = value
    np.savez(file, **held)
    refused(file, "altered: its digest does not match")


def test_more_or_fewer_arrays_are_noticed(file: Path) -> None:
    held = members(file)
    np.savez(file, **held, more=np.zeros(3))
    refused(file, "has been altered: it holds")
    np.savez(file, **{key: held[key] for key in ("head", "digest")})
    refused(file, "has been altered: it holds")


def test_objects_are_never_unpickled(file: Path) -> None:
    held = members(file)
    held["a0"] = np.array([{"a": 1}], dtype=object)
    np.savez(file, **held)
    refused(file, "")


def test_other_formats_and_versions_are_refused(file: Path) -> None:
    with pytest.raises(ValueError, match="is a 'dmfvi-test' file, no 'dmfvi-other' file: do it"):
        read_structured(file, KIND._replace(format="dmfvi-other"))
    with pytest.raises(ValueError, match="has version 3, this library reads version 4: do it"):
        read_structured(file, KIND._replace(version=4))
    with pytest.raises(ValueError, match="belongs to another model, data or network"):
        read_structured(file, KIND, mark="else")


@pytest.mark.parametrize(
    ("former", "words"),
    [
        ({"format": "dmfvi-pca-posterior", "version": 1}, "is a dmfvi-pca-posterior file of a"),
        ({"format": "dmfvi-posterior", "version": 1}, "is a dmfvi-posterior file of a former"),
        ({"format": "dmfvi-ratings", "version": 1}, "is a dmfvi-ratings file of a former"),
        ({"head": '{"format": "dmfvi-test", "version": 1}', "digest": ""}, "has version 1, this"),
        ({"head": '{"format": "dmfvi-test", "version": 2}', "digest": ""}, "has version 2, this"),
        ({"something": np.zeros(3)}, r"is no test file, it holds \['something'\]"),
        ({"head": "[1, 2]"}, "is a 'list' file"),
        ({"head": "not json"}, "is damaged or no test file"),
    ],
    ids=str,
)
def test_files_of_former_versions_and_of_others(
    tmp_path: Path, former: dict[str, Any], words: str
) -> None:
    np.savez(tmp_path / "a.npz", **former)
    refused(tmp_path / "a.npz", words)


def test_the_head_may_not_be_nested_without_end(file: Path) -> None:
    for depth in (archive.MOST_DEPTH + 1, 200_000):
        text = '{"format": "dmfvi-test", "content": ' + "[" * depth + "]" * depth + "}"
        np.savez(file, head=np.frombuffer(text.encode(), np.uint8))
        refused(file, f"nested {depth + 1} deep, at most {archive.MOST_DEPTH}")
    nested: list[Any] = []
    for _ in range(archive.MOST_DEPTH):
        nested = [nested]
    with pytest.raises(ValueError, match="is not written"):
        write_structured(file, nested, KIND)


def npy(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array(made, array)
    return made.getvalue()


def test_a_small_file_cannot_ask_for_much_memory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(archive, "_member", None)  # nothing may be read
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("head.npy", npy(np.frombuffer(b"{}", np.uint8)))
        made.writestr("a0.npy", npy(np.zeros(1 << 20)))
    refused(file, "bytes unpack to .*, at most 1048576")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("head.npy", npy(np.zeros(1 << 10)))
    refused(file, "compressed in an unknown way")


def test_a_head_of_any_size_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_HEAD", 100)
    monkeypatch.setattr(archive, "MOST_NPY_HEADER", 128)
    monkeypatch.setattr(archive, "_member", None)
    refused(file, "has a head of .* bytes, at most 100")


def test_arrays_are_as_large_as_they_are_declared(file: Path) -> None:
    """The directory is compared with the head, and an array's own header with the directory."""
    held = members(file)
    head = json.loads(held["head"].tobytes())
    name = next(key for key, array in held.items() if array.dtype == np.float64)
    held[name] = np.zeros(10_000)
    np.savez(file, **held)
    refused(file, rf"altered: {name} takes 80128 bytes, declared are {head['arrays'][name]}")
    raw = npy(np.zeros(50)).replace(b"(50,)", b"(99,)")
    with zipfile.ZipFile(file, "w") as made:
        for key, array in held.items():
            made.writestr(f"{key}.npy", raw if key == name else npy(array))
    refused(file, "is damaged or no test file")


def test_large_arrays_come_back_uncompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "COMPRESS_BELOW", 1000)
    content = [np.zeros(20_000), np.zeros(20), np.asfortranarray(np.arange(6.0).reshape(2, 3))]
    file = write_structured(tmp_path / "a.npz", content, KIND)
    assert file.stat().st_size > 160_000
    back = read_structured(file, KIND)
    np.testing.assert_equal(back, content)
    assert back[2].flags.f_contiguous
    back[0][0] = 1.0  # may be written to
