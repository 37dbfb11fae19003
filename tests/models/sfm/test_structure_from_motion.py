"""Structure from motion: every camera ends with the pooled structure, and the structure is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from dmfvi import Federation, Links, Network, StructureFromMotion
from dmfvi.datasets import make_cube, mask_at_random, mask_points_at_random
from dmfvi.linalg import FloatArray

CUBE = make_cube(seed=3)
COMPLETE, HIDDEN = np.concatenate(CUBE.cameras), np.concatenate(CUBE.hidden)
HALF_MISSING = mask_at_random(COMPLETE, 0.25, seed=1)  # x without y and y without x
NETWORKS = [
    Network.ring(5),
    Network.star(5),
    Network.chain(4),
    Network.complete(3),
    Network.grid(2, 3),
]


def rotated_error(structure: FloatArray, truth: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points less the truth after the best rotation or reflection, and that rotation."""
    left, _, right = np.linalg.svd(structure.T @ truth)
    turn = left @ right
    return structure @ turn - truth, turn


@pytest.mark.parametrize("tracks", [COMPLETE, HIDDEN, HALF_MISSING], ids=["all", "hidden", "half"])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_every_camera_has_the_pooled_structure(network: Network, tracks: FloatArray) -> None:
    pooled = StructureFromMotion(random_state=0, tol=1e-9).fit(tracks)
    model = StructureFromMotion(network=network, random_state=0).fit(tracks)
    assert model.converged_
    for structure in model.node_structures_:
        np.testing.assert_allclose(structure, pooled.structure_, atol=1e-6)
    np.testing.assert_allclose(model.structure_cov_, pooled.structure_cov_, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(model.cameras_, pooled.cameras_, atol=1e-5)
    assert model.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-8)


@pytest.mark.parametrize("rule", ["statistics-tracking", "all-reduce"])
def test_other_consensus_rules_agree(rule: str) -> None:
    pooled = StructureFromMotion(random_state=0, tol=1e-9).fit(HIDDEN)
    model = StructureFromMotion(
        network=Federation(Network.ring(5), consensus=rule), random_state=0
    ).fit(HIDDEN)
    np.testing.assert_allclose(model.structure_, pooled.structure_, atol=1e-6)


def test_lost_messages_do_not_matter() -> None:
    pooled = StructureFromMotion(random_state=0, tol=1e-9).fit(HIDDEN)
    links = Links(loss=0.2, seed=1)
    model = StructureFromMotion(
        network=Federation(Network.ring(5), links=links), random_state=0
    ).fit(HIDDEN)
    assert model.converged_
    for structure in model.node_structures_:
        np.testing.assert_allclose(structure, pooled.structure_, atol=1e-6)


@pytest.mark.parametrize("tracks", [COMPLETE, HIDDEN, HALF_MISSING], ids=["all", "hidden", "half"])
def test_the_bound_never_falls(tracks: FloatArray) -> None:
    bounds = StructureFromMotion(random_state=0, tol=1e-9).fit(tracks).history_["objective"]
    steps = np.diff(bounds[1:])
    assert len(steps) > 5
    assert steps.min() > -1e-8 * abs(bounds[-1])


@pytest.mark.parametrize("metric", ["orthographic", "scaled-orthographic"])
def test_a_cube_comes_out_as_a_cube(metric) -> None:
    model = StructureFromMotion(network=Network.ring(5), metric=metric, random_state=0).fit(
        CUBE.hidden
    )
    assert model.metric_
    error, _ = rotated_error(model.structure_, CUBE.structure)
    assert np.abs(error).max() < 0.006  # edges of one, noise of 0.01
    assert model.noise_ == pytest.approx(0.01, rel=0.05)
    sizes = np.linalg.norm(model.cameras_[:, :, :3], axis=2)
    np.testing.assert_allclose(sizes, 1.0, atol=0.06)
    np.testing.assert_allclose(model.reprojection_error_, 0.01 * np.sqrt(2), rtol=0.5)


def test_points_that_are_never_seen_together_need_no_common_centroid() -> None:
    """The centroid of what is seen is another point in every frame: centring on it would cost 1.5 degrees."""
    model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(CUBE.hidden)
    angle = np.degrees(subspace_angles(model.structure_, CUBE.structure)[0])
    assert angle < 0.3


def test_ellipsoids_and_intervals_are_calibrated() -> None:
    inside, covered, total = [], 0.0, 0
    for seed in range(12):
        cube = make_cube(seed=seed, n_frames=20)
        truth = np.concatenate(cube.cameras)
        tracks = mask_points_at_random(truth, 0.2, seed=seed)
        model = StructureFromMotion(random_state=0).fit(tracks)
        error, turn = rotated_error(model.structure_, cube.structure)
        spread = turn.T @ model.structure_cov_ @ turn
        distance = np.einsum("pi,pi->p", error, np.linalg.solve(spread, error[..., None])[..., 0])
        inside += list(distance < 6.251)  # 90 % of chi-square with three degrees
        gone = np.isnan(tracks)
        low, high = model.impute_interval(0.9)
        covered += float(((low <= truth) & (truth <= high))[gone].sum())
        total += int(gone.sum())
    assert 0.8 < np.mean(inside) <= 1.0
    assert covered / total == pytest.approx(0.9, abs=0.025)


def test_input_forms_are_the_same_model() -> None:
    network = Network.ring(5)
    listed = StructureFromMotion(network=network, random_state=0).fit(CUBE.hidden)
    cubed = StructureFromMotion(network=network, random_state=0).fit(HIDDEN.reshape(-1, 2, 8))
    np.testing.assert_allclose(cubed.structure_, listed.structure_, atol=1e-9)
    order = np.random.default_rng(0).permutation(250)
    owner = np.repeat(np.arange(5), 50)[order]
    shuffled = StructureFromMotion(network=network, metric=None, random_state=0).fit(
        HIDDEN.reshape(-1, 2, 8)[order], cameras=owner
    )
    plain = StructureFromMotion(network=network, metric=None, random_state=0).fit(CUBE.hidden)
    np.testing.assert_array_equal(shuffled.camera_of_frame_, owner)
    np.testing.assert_allclose(
        shuffled.reconstruct(),
        plain.reconstruct().reshape(-1, 2, 8)[order].reshape(-1, 8),
        atol=1e-6,
    )


def test_imputed_points_are_near_the_hidden_ones() -> None:
    model = StructureFromMotion(random_state=0).fit(HIDDEN)
    filled, std = model.impute(return_std=True)
    gone = np.isnan(HIDDEN)
    assert np.sqrt(np.mean((filled - COMPLETE)[gone] ** 2)) < 0.025
    np.testing.assert_array_equal(filled[~gone], HIDDEN[~gone])
    assert (std[~gone] == 0).all()
    assert (std[gone] > 0.01).all()


def test_a_frame_with_x_only_is_used() -> None:
    tracks = HIDDEN.copy()
    tracks[1] = np.nan
    tracks[5, 3:] = np.nan
    model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(tracks)
    assert model.metric_
    assert np.isfinite(model.cameras_[0, 0]).all()
    assert np.isnan(model.cameras_[0, 1]).all()


def turntable(angle: float, distance: float, noise: float, seed: int) -> np.ndarray:
    """Tracks (2F, P) of a cloud on a turntable, seen from a distance in units of its size."""
    rng = np.random.default_rng(seed)
    cloud, rows = rng.normal(size=(40, 3)), []
    tilt = np.array([[1, 0, 0], [0, np.cos(0.05), -np.sin(0.05)], [0, np.sin(0.05), np.cos(0.05)]])
    for a in np.linspace(0.0, angle, 30):
        turn = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
        seen = cloud @ (tilt @ turn).T
        rows += list((seen[:, :2] / (1.0 + seen[:, 2:] / distance)).T)
    return 100.0 * np.array(rows) + noise * rng.normal(size=(60, 40))


@pytest.mark.filterwarnings("ignore:the structure stays affine")
def test_a_full_turn_is_not_said_to_turn_too_little() -> None:
    for seed in range(4):
        near = StructureFromMotion(random_state=0).fit(turntable(2 * np.pi, 2.3, 0.5, seed))
        assert not near.metric_
        assert "turn too little" not in near.metric_message_
        assert "far from orthographic" in near.metric_message_
        far = StructureFromMotion(random_state=0).fit(turntable(2 * np.pi, 1e6, 0.5, seed))
        assert far.metric_
    still = StructureFromMotion(random_state=0).fit(turntable(0.02, 1e6, 0.3, 0))
    assert not still.metric_
    assert "far from orthographic (" not in still.metric_message_


def test_views_that_do_not_turn_stay_affine_and_say_so() -> None:
    one_view = np.tile(COMPLETE[:2], (6, 1)) + 1e-3 * np.random.default_rng(0).standard_normal(
        (12, 8)
    )
    with pytest.warns(UserWarning, match="the structure stays affine"):
        model = StructureFromMotion(random_state=0).fit(one_view)
    assert not model.metric_
    assert model.metric_message_


def test_a_frame_that_sees_nothing_is_no_obstacle() -> None:
    tracks = HIDDEN.copy()
    tracks[100:104] = np.nan
    model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(tracks)
    assert np.isnan(model.cameras_[50:52]).all()
    assert np.isfinite(model.structure_).all()
    assert np.isfinite(model.reprojection_error_)


@pytest.mark.parametrize(
    ("tracks", "message"),
    [
        (COMPLETE[:7], "7 rows, an odd number"),
        (COMPLETE[:, :3], "at least 4 points, received 3"),
        (np.zeros((4, 3, 8)), r"\(frames, 2, points\), received shape \(4, 3, 8\)"),
        (
            np.where(np.arange(8) == 6, np.nan, COMPLETE),
            r"points seen in fewer than 2 frames: 6 \(0\)",
        ),
        (np.where(np.arange(500)[:, None] < 100, np.nan, COMPLETE), "camera 0 sees no point"),
        (np.where(COMPLETE[4, 5] == COMPLETE, np.inf, COMPLETE), "infinite at point 5 in frame 2"),
        ([c[:, :-1] if i else c for i, c in enumerate(CUBE.cameras)], r"\[8, 7, 7, 7, 7\]"),
        (CUBE.cameras[:3], "3 cameras for a network of 5"),
        ([], "an empty list"),
        (COMPLETE[:4], "2 frames cannot be split over 5 cameras"),
    ],
)
def test_bad_tracks_are_named(tracks, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StructureFromMotion(network=Network.ring(5)).fit(tracks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "perspective"}, "metric must be one of"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"network": Federation(Network.ring(5), "gossip")}, "consensus must be one of"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_bad_settings_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StructureFromMotion(**settings).fit(COMPLETE)
    with pytest.raises(ValueError, match="cameras must hold one whole number"):
        StructureFromMotion(network=Network.ring(5)).fit(COMPLETE, cameras=[0, 1])


def test_ply_and_figure_are_written(tmp_path: Path) -> None:
    model = StructureFromMotion(random_state=0).fit(HIDDEN)
    lines = model.save_ply(tmp_path / "cube.ply").read_text().splitlines()
    assert lines[0] == "ply"
    assert "element vertex 8" in lines
    body = np.array([line.split() for line in lines[lines.index("end_header") + 1 :]], dtype=float)
    np.testing.assert_allclose(body[:, :3], model.structure_, rtol=1e-7)
    deviation = np.sqrt(np.trace(model.structure_cov_, axis1=1, axis2=2) / 3)
    np.testing.assert_allclose(body[:, 3], deviation, rtol=1e-7)
    np.testing.assert_allclose(body[:, 4], model.structure_cov_[:, 0, 0], rtol=1e-7)
    assert model.save_figure(tmp_path / "cube.png").stat().st_size > 10_000
