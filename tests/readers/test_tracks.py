"""Readers of tracks: every format, and errors that name the file and the field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dmfvi.datasets import make_cube
from dmfvi.readers import read_tracks
from helpers import shared_data

CUBE = np.concatenate(make_cube(n_frames=4).hidden)


def test_measurement_matrix(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"measurement_matrix": CUBE})
    tracks = read_tracks(tmp_path / "a.mat")
    np.testing.assert_array_equal(tracks.data, CUBE)
    assert (tracks.n_frames, tracks.n_points, tracks.name) == (20, 8, "a")


def test_matrix_with_mask(tmp_path: Path) -> None:
    seen = np.isfinite(CUBE)
    content = {"M": np.where(seen, CUBE, 0.0), "W": seen.astype(np.uint8)}
    savemat(tmp_path / "a.mat", content)
    np.testing.assert_array_equal(read_tracks(tmp_path / "a.mat").data, CUBE)


def test_coordinate_tables(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"track_x": CUBE[0::2].T, "track_y": CUBE[1::2].T})
    np.testing.assert_array_equal(read_tracks(tmp_path / "a.mat").data, CUBE)


def test_hopkins155_truth_with_its_motions(tmp_path: Path) -> None:
    complete = np.concatenate(make_cube(n_frames=4).cameras).reshape(-1, 2, 8)
    weights = np.linspace(1.0, 2.0, 8)
    y = np.stack([complete[:, 0] * weights, complete[:, 1] * weights, np.tile(weights, (20, 1))])
    labels = np.array([[1], [1], [1], [1], [2], [2], [2], [2]])
    savemat(tmp_path / "1R2_truth.mat", {"y": np.moveaxis(y, 1, 2), "x": 0.0, "s": labels})
    tracks = read_tracks(tmp_path / "1R2_truth.mat")
    np.testing.assert_allclose(tracks.data, complete.reshape(-1, 8))
    assert tracks.name == "1R2"
    assert tracks.of_motion(2).n_points == 4
    with pytest.raises(ValueError, match=r"motions \[1.0, 2.0\], received 3"):
        tracks.of_motion(3)


def test_csv_matrix_and_observations(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "wide.csv", CUBE, delimiter=",")
    np.testing.assert_allclose(read_tracks(tmp_path / "wide.csv").data, CUBE)
    lines = ["frame,point,x,y"]
    for f, p in np.argwhere(np.isfinite(CUBE[0::2])):
        lines.append(f"{f},{p},{float(CUBE[2 * f, p])!r},{float(CUBE[2 * f + 1, p])!r}")
    (tmp_path / "long.csv").write_text("\n".join(lines))
    np.testing.assert_allclose(read_tracks(tmp_path / "long.csv").data, CUBE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"other": 1.0}, "holds .'other'.: tracks need one of"),
        ({"measurement_matrix": np.zeros((3, 5))}, "3 rows"),
        ({"measurement_matrix": "words"}, "field 'measurement_matrix'"),
        ({"M": np.zeros((4, 5)), "W": np.zeros((4, 6))}, "its mask W"),
        ({"track_x": np.zeros((4, 5)), "track_y": np.zeros((4, 6))}, "track_y"),
        ({"y": np.zeros((3, 5, 2)), "s": np.zeros((4, 1))}, "one label"),
    ],
)
def test_wrong_matlab_files_are_named(tmp_path: Path, content: dict, message: str) -> None:
    savemat(tmp_path / "wrong.mat", content)
    with pytest.raises(ValueError, match=message) as caught:
        read_tracks(tmp_path / "wrong.mat")
    assert "wrong.mat" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frame,point,x,y\n0,0,1,2\n0,0,3,4\n", "point 0 occurs more than once in frame 0"),
        ("frame,point,x,y\n0.5,0,1,2\n", "observation 1: frame"),
        ("1,2\n3,4\n5,6\n", "3 rows"),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_tracks(tmp_path / "wrong.csv")
    assert "wrong.csv" in str(caught.value)


def test_damaged_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "torn.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(40))
    with pytest.raises(ValueError, match=r"torn.mat is not a readable MATLAB 5 file"):
        read_tracks(tmp_path / "torn.mat")
    with pytest.raises(FileNotFoundError, match=r"none.mat"):
        read_tracks(tmp_path / "none.mat")


@pytest.mark.parametrize(
    ("file", "frames", "points", "missing"),
    [
        ("caltech_turntable/001.mat", 30, 62, 0.0),
        ("sfm/dino_trimmed.mat", 36, 319, 0.7692),
        ("sfm/hotel_tracks.mat", 51, 500, 0.1337),
    ],
)
def test_recorded_files(file: str, frames: int, points: int, missing: float) -> None:
    tracks = read_tracks(shared_data() / file)
    assert (tracks.n_frames, tracks.n_points) == (frames, points)
    assert np.isnan(tracks.data).mean() == pytest.approx(missing, abs=1e-3)


def observations(path: Path, names: str) -> Path:
    lines = [names] if names else []
    for f, p in np.argwhere(np.isfinite(CUBE[0::2])):
        lines.append(f"{f},{p},{float(CUBE[2 * f, p])!r},{float(CUBE[2 * f + 1, p])!r}")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("names", ["frame_id,track_id,u,v", "image,id,px,py", "a,b,c,d", ""])
def test_observations_under_other_names_are_not_taken_for_a_matrix(
    names: str, tmp_path: Path
) -> None:
    path = observations(tmp_path / "long.csv", names)
    with pytest.raises(ValueError, match="looks like one observation a line"):
        read_tracks(path)
    told = names.split(",") if names else [1, 2, 3, 4]
    np.testing.assert_allclose(read_tracks(path, told).data, CUBE)
    with pytest.raises(ValueError, match="needs the columns of frame, point, x and y"):
        read_tracks(path, told[:3])


def test_the_message_says_which_column_is_which(tmp_path: Path) -> None:
    path = observations(tmp_path / "long.csv", "")
    table = np.loadtxt(path, delimiter=",")[:, [3, 1, 2, 0]]
    lines = [",".join(repr(float(v)) for v in row) for row in table]
    path.write_text("\n".join(["v,track_id,u,frame_id", *lines]))
    with pytest.raises(ValueError, match="--columns frame_id,track_id,u,v"):
        read_tracks(path)
    np.testing.assert_allclose(
        read_tracks(path, ["frame_id", "track_id", "u", "v"]).data, CUBE, atol=1e-12
    )


def test_a_matrix_may_look_like_observations(tmp_path: Path) -> None:
    whole = np.array([[0, 0, 1.5, 2.5], [0, 1, 2.5, 1.5], [1, 0, 3.5, 0.5], [1, 1, 0.5, 1.0]])
    np.save(tmp_path / "m.npy", whole)
    with pytest.raises(ValueError, match="--matrix"):
        read_tracks(tmp_path / "m.npy")
    np.testing.assert_array_equal(read_tracks(tmp_path / "m.npy", matrix=True).data, whole)


def test_text_in_other_columns_than_those_of_observations_is_no_matter(tmp_path: Path) -> None:
    rows = [
        f"left,{f},{p},{CUBE[2 * f, p]},{CUBE[2 * f + 1, p]}"
        for f in range(20)
        for p in range(8)
        if np.isfinite(CUBE[2 * f, p])
    ]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["camera,frame,point,x,y", *rows]))
    np.testing.assert_array_equal(read_tracks(file).data, CUBE)
