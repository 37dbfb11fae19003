"""Masks and the cube: seeded, of the rate they promise, and missing for the reason they promise."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi.datasets import (
    make_cube,
    make_gaussian,
    mask_at_random,
    mask_by_depth,
    mask_large_values,
    mask_points_at_random,
)

DATA = make_gaussian(400, 20, seed=1)


@pytest.mark.parametrize("mask", [mask_at_random, mask_large_values, mask_points_at_random])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6])
def test_rate_and_seed(mask, rate: float) -> None:
    hidden = mask(DATA, rate, seed=3)
    assert np.isnan(hidden).mean() == pytest.approx(rate, abs=0.02)
    np.testing.assert_array_equal(hidden, mask(DATA, rate, seed=3))
    if rate:
        assert not np.array_equal(np.isnan(hidden), np.isnan(mask(DATA, rate, seed=4)))
    kept = np.isfinite(hidden)
    np.testing.assert_array_equal(hidden[kept], DATA[kept])


def test_large_values_go_missing_more_often() -> None:
    hidden = np.isnan(mask_large_values(DATA, 0.3))
    assert DATA[hidden].mean() > DATA[~hidden].mean() + DATA.std()


def test_points_lose_both_coordinates() -> None:
    hidden = np.isnan(mask_points_at_random(DATA, 0.3))
    np.testing.assert_array_equal(hidden[0::2], hidden[1::2])


def test_losses_by_depth_are_contiguous_and_deep() -> None:
    angles = np.linspace(0, 2, 40)[:, None] + np.linspace(0, 6, 50)[None]
    depth = np.cos(angles)
    hidden = np.isnan(mask_by_depth(np.zeros((80, 50)), depth, 0.1, seed=0))[0::2]
    assert hidden.mean() == pytest.approx(0.1, abs=0.005)
    assert depth[hidden].mean() > 0.5
    assert (np.abs(np.diff(hidden.astype(int), axis=0)).sum(0) <= 2).all()  # one run a point
    assert ((~hidden).sum(0) >= 2).all()
    with pytest.raises(ValueError, match="depth of shape"):
        mask_by_depth(np.zeros((80, 49)), depth, 0.1)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate must lie in"):
        mask_at_random(DATA, rate)


def test_the_cube_hides_the_vertex_behind_it() -> None:
    """Of an opaque cube in general position exactly the farthest vertex is out of sight."""
    cube = make_cube(noise=0.0, seed=5)
    complete, hidden = np.concatenate(cube.cameras), np.concatenate(cube.hidden)
    gone = np.isnan(hidden[0::2])
    assert (gone.sum(1) == 1).all()
    for frame in range(0, len(gone), 17):
        axes = np.linalg.lstsq(cube.structure, complete[2 * frame : 2 * frame + 2].T, rcond=None)[
            0
        ].T
        towards = np.cross(axes[0], axes[1])
        assert (cube.structure @ towards).argmin() == np.flatnonzero(gone[frame])[0]


def test_the_cube_is_rank_three_and_seeded() -> None:
    cube = make_cube(noise=0.0)
    rows = np.concatenate(cube.cameras)
    assert rows.shape == (500, 8)
    assert np.linalg.matrix_rank(rows, tol=1e-9) == 3
    np.testing.assert_array_equal(make_cube(seed=1).cameras[2], make_cube(seed=1).cameras[2])
    assert np.std(make_cube(noise=0.02).cameras[0] - cube.cameras[0]) == pytest.approx(
        0.02, rel=0.1
    )
    with pytest.raises(ValueError, match="noise must not be negative"):
        make_cube(noise=-1.0)
