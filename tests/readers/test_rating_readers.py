"""Readers: every format gives the same ratings under the same ids; bad lines are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmfvi.models.ratings.table import RatingTable
from dmfvi.readers import rating_text as text_module
from dmfvi.readers import read_probe, read_ratings

#: (user, item, rating) as the files below hold them
TRIPLES = [(7, 10, 5.0), (7, 30, 3.0), (2, 10, 4.0), (900, 20, 1.0), (2, 20, 2.0)]


def as_set(table: RatingTable) -> set[tuple]:
    users, items = table.user_ids[table.users], table.item_ids[table.items]
    return set(
        zip(users.tolist(), items.tolist(), table.ratings.astype(float).tolist(), strict=True)
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def netflix_text(items: list[int]) -> str:
    lines = []
    for item in items:
        lines.append(f"{item}:")
        lines += [f"{u},{int(r)},2005-09-06" for u, i, r in TRIPLES if i == item]
    return "\n".join(lines) + "\n"


def make_u_data(folder: Path) -> Path:
    lines = [f"{u}\t{i}\t{int(r)}\t881250949" for u, i, r in TRIPLES]
    return write(folder / "u.data", "\n".join(lines) + "\n")


def make_dat(folder: Path) -> Path:
    lines = [f"{u}::{i}::{r:g}::978300760" for u, i, r in TRIPLES]
    return write(folder / "ratings.dat", "\r\n".join(lines))  # and no end of the last line


def make_csv(folder: Path) -> Path:
    lines = ["userId,movieId,rating,timestamp", *(f"{u},{i},{r},96" for u, i, r in TRIPLES)]
    return write(folder / "ratings.csv", "\n".join(lines))


def make_other_csv(folder: Path) -> Path:
    lines = ['"Rating";"comment";"Item ID";"User ID"']
    lines += [f'{r};"a; b";"{i}";{u}' for u, i, r in TRIPLES]
    return write(folder / "shop.csv", "\n".join(lines) + "\n")


def make_bare_csv(folder: Path) -> Path:
    return write(folder / "bare.csv", "\n".join(f"{u},{i},{r}" for u, i, r in TRIPLES))


def make_mv_directory(folder: Path) -> Path:
    where = folder / "training_set"
    where.mkdir()
    for item in (10, 20, 30):
        write(where / f"mv_{item:07}.txt", netflix_text([item]))
    return where


def make_combined(folder: Path) -> Path:
    where = folder / "netflix"
    where.mkdir()
    write(where / "combined_data_1.txt", netflix_text([10, 20]))
    write(where / "combined_data_2.txt", netflix_text([30]))
    return where


def make_combined_file(folder: Path) -> Path:
    return write(folder / "combined_data_1.txt", netflix_text([10, 20, 30]))


def make_parquet(folder: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    users, items, ratings = zip(*TRIPLES, strict=True)
    path = folder / "ratings.parquet"
    pq.write_table(pa.table({"user_id": users, "item_id": items, "rating": ratings}), path)
    return path


MAKERS = [
    make_u_data,
    make_dat,
    make_csv,
    make_other_csv,
    make_bare_csv,
    make_mv_directory,
    make_combined,
    make_combined_file,
    make_parquet,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("block", [1 << 24, 40], ids=["one block", "many blocks"])
def test_every_format_gives_the_same_ratings(
    tmp_path: Path, make, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "BLOCK", block)
    seen: list[tuple[int, int]] = []
    table = read_ratings(make(tmp_path), progress=lambda done, total: seen.append((done, total)))
    assert as_set(table) == set(TRIPLES)
    assert seen[-1][0] == seen[-1][1]


def test_ids_may_be_words(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", 'user,item,rating\n"Ann, B.",Alien,4.5\nBob,Heat,3\n')
    assert as_set(read_ratings(path)) == {("Ann, B.", "Alien", 4.5), ("Bob", "Heat", 3.0)}
    mixed = write(tmp_path / "m.csv", "user,item,rating\n1,7,4\n2,B00X,3\n")
    with pytest.raises(ValueError, match=r"m\.csv, line 3: .*no whole number.*text_ids"):
        read_ratings(mixed)
    assert ("2", "B00X", 3.0) in as_set(read_ratings(mixed, text_ids=True))


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", "who,what,stars\n1,2,3\n")
    with pytest.raises(ValueError, match="is a user's"):
        read_ratings(path)
    assert as_set(read_ratings(path, columns=("who", "what", "stars"))) == {(1, 2, 3.0)}
    with pytest.raises(ValueError, match=r"not \['nobody'\]"):
        read_ratings(path, columns=("nobody", "what", "stars"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("u.data", "1\t2\t3\t4\n1\t3\n", r"u\.data, line 2: .*too few fields"),
        ("u.data", "1\t2\t3\t4\n1\tx\t3\t4\n", r"line 2: .*no whole number"),
        ("u.data", "1\t2\t3\t4\n\n1\t5\tx\t4\n", r"line 3: .*rating that is no number"),
        ("u.data", "1\t2\tnan\t4\n1\t5\tnan\t4\n", "tab|number"),
        ("u.data", "-1\t2\t3\t4\n", r"line 1: .*negative id"),
        ("r.csv", "userId,movieId,rating\n1,2,3\n1,2", r"r\.csv, line 3: .*too few fields"),
        ("r.csv", "userId,movieId,rating\n", "holds no ratings"),
        ("r.csv", "hello\n", "no tab, comma"),
        ("r.csv", "", "is empty"),
        ("combined_data_1.txt", "1:\n5,3,2005-01-01\n6\n", r"line 3: .*too few fields"),
        ("combined_data_1.txt", "1:\n5,x,2005-01-01\n", r"line 2: .*no number"),
        ("combined_data_1.txt", "1:\nfive,3,2005-01-01\n", r"line 2: .*no whole number"),
        ("r.parquet", "not parquet", "not a readable Parquet|needs pyarrow"),
    ],
)
def test_bad_files_are_refused_with_the_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises((ValueError, ImportError), match=message):
        read_ratings(write(tmp_path / name, text))


def test_line_numbers_hold_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "BLOCK", 64)
    good = "".join(f"{n}\t{n}\t3\t4\n" for n in range(1, 500))
    path = write(tmp_path / "u.data", good + "oops\t1\t2\t3\n" + good)
    with pytest.raises(ValueError, match=r"line 500: 'oops"):
        read_ratings(path)


def test_missing_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_ratings(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="name the file itself"):
        read_ratings(tmp_path)


def test_the_cache_is_used_until_the_source_changes(tmp_path: Path) -> None:
    path, where = make_u_data(tmp_path), tmp_path / "cache"
    first = read_ratings(path, cache=where)
    (copy,) = where.iterdir()
    calls: list[int] = []
    again = read_ratings(path, cache=where, progress=lambda done, total: calls.append(done))
    assert not calls  # nothing was parsed
    assert as_set(again) == as_set(first)
    copy.write_bytes(b"torn")
    assert as_set(read_ratings(path, cache=where)) == as_set(first)
    path.write_text("1\t2\t3\t4\n", encoding="utf-8")
    assert as_set(read_ratings(path, cache=where)) == {(1, 2, 3.0)}


def test_the_cache_is_compact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 50_000
    lines = "\n".join(
        f"{u}\t{i}\t{r}\t0"
        for u, i, r in zip(
            rng.integers(1, 9000, n), rng.integers(1, 300, n), rng.integers(1, 6, n), strict=True
        )
    )
    read_ratings(write(tmp_path / "u.data", lines), cache=tmp_path / "cache")
    (copy,) = (tmp_path / "cache").iterdir()
    ids = 8 * (9000 + 300)
    assert copy.stat().st_size < 7.2 * n + ids + 2000


@pytest.mark.parametrize(
    "text",
    ["10:\n7\n2\n20:\n900\n", "user,item\n7,10\n2,10\n900,20\n5,5\n", "7\t10\n2\t10\n900\t20\n"],
)
def test_a_probe_names_what_to_hold_out(tmp_path: Path, text: str) -> None:
    table = read_ratings(make_u_data(tmp_path))
    held = read_probe(write(tmp_path / "probe.txt", text), table)
    assert as_set(table[held]) == {(7, 10, 5.0), (2, 10, 4.0), (900, 20, 1.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("10:\n", "is empty"),
        ("10:\n55\n", "none of which has a rating"),
        ("10:\nx\n", r"probe\.txt, line 2"),
    ],
)
def test_bad_probes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    table = read_ratings(make_u_data(tmp_path))
    with pytest.raises(ValueError, match=message):
        read_probe(write(tmp_path / "probe.txt", text), table)


def test_arrays_of_numpy(tmp_path: Path) -> None:
    users, items, stars = (
        np.array(["ann", "bob", "ann"]),
        np.array([7, 7, 9]),
        np.array([1.5, 2, 3]),
    )
    np.savez(tmp_path / "a.npz", users=users, items=items, ratings=stars)
    table = read_ratings(tmp_path / "a.npz")
    assert table.user_ids[table.users].tolist() == users.tolist()
    assert table.item_ids[table.items].tolist() == items.tolist()
    assert table.ratings.tolist() == stars.tolist()
    np.savez(tmp_path / "b.npz", users=users, items=items[:2], ratings=stars)
    with pytest.raises(ValueError, match=r"must be of one length, received \[3, 2, 3\]"):
        read_ratings(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", users=users, items=items, ratings=users)
    with pytest.raises(ValueError, match="numbers are needed"):
        read_ratings(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", users=users, items=items)
    with pytest.raises(ValueError, match="nor does it hold the arrays users, items and ratings"):
        read_ratings(tmp_path / "d.npz")
