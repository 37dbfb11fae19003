"""From affine to metric: the change of axes that makes the cameras orthographic (Tomasi & Kanade 1992).

Rows i, j of a camera must obey i'Qi = j'Qj (= 1) and i'Qj = 0 for Q = A A'. That is linear in Q. Each camera adds up
the normal equations of its own frames (a few dozen numbers), so that the network agrees on Q by one sum.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray

CameraModel = Literal["orthographic", "scaled-orthographic"]

#: a frame with fewer points has too little information on its camera
MIN_SEEN = 4
#: below this part of the largest eigenvalue a direction counts as not determined
RANK_TOLERANCE = 1e-9
#: smallest ratio of Q's eigenvalues; a flatter one has collapsed a dimension
FLATTEST = 1e-8
N_UNKNOWNS = 6
#: sizes along some direction may be uncertain by this part of themselves, no more
LOOSEST = 0.5
#: a point this part of the largest depth away from the middle decides the sign of depth
CLEAR_DEPTH = 0.2
#: views that hardly turn leave an eigenvalue of about zero; one as negative as this comes of other cameras
NEARLY_FLAT = 0.01


class Upgrade(NamedTuple):
    """A with m' = m A, or None and the reason why there is none; and the covariance (6, 6) of Q's numbers."""

    matrix: FloatArray | None
    message: str
    covariance: FloatArray


def normal_equations(rows: FloatArray, model: CameraModel) -> FloatArray:
    """Gram matrix (6, 6), right-hand side (6,) and sizes of the constraints of these camera rows (2F, 3)."""
    i, j = rows[0::2], rows[1::2]
    one = np.ones(len(i))
    blocks = [(products(i, j), 0.0 * one)]
    if model == "orthographic":
        blocks += [(products(i, i), one), (products(j, j), one)]
    else:
        blocks += [(products(i, i) - products(j, j), 0.0 * one)]
    matrix = np.concatenate([block for block, _ in blocks])
    right = np.concatenate([values for _, values in blocks])
    size = (rows.T @ rows).ravel()  # what scaled orthography is scaled by
    counts = [np.vdot(right, right), len(right), len(i)]
    return np.concatenate([(matrix.T @ matrix).ravel(), matrix.T @ right, size, counts])


def upgrade(equations: FloatArray, model: CameraModel) -> Upgrade:
    """Solve the agreed equations for Q, judge what they determine, and take Q's root."""
    gram = equations[: N_UNKNOWNS**2].reshape(N_UNKNOWNS, N_UNKNOWNS)
    right = equations[N_UNKNOWNS**2 : N_UNKNOWNS**2 + N_UNKNOWNS]
    size = equations[-12:-3].reshape(3, 3)
    squares, n_equations, n_frames = equations[-3:]
    values, vectors = np.linalg.eigh(gram)
    needed = N_UNKNOWNS if model == "orthographic" else N_UNKNOWNS - 1
    determined = int((values > RANK_TOLERANCE * values[-1]).sum()) if values[-1] > 0 else 0
    if determined < needed or n_equations <= needed:
        return _impossible(
            f"the frames fix only {min(determined, round(n_equations))} of {needed} numbers of "
            "the metric: more views from other directions are needed"
        )
    if model == "orthographic":
        six = np.asarray(np.linalg.solve(gram, right))
        noise = max(float(squares - six @ right), 0.0) / (n_equations - needed)
        covariance = noise * np.linalg.inv(gram)
    else:  # any scale fulfils the constraints: take the one that keeps the cameras' size 1 on average
        q = symmetric(vectors[:, 0])
        six = vectors[:, 0] * 2.0 * n_frames / float(np.sum(q * size))
        kept = vectors[:, 1:] / np.sqrt(values[1:])
        noise = max(float(values[0]), 0.0) / (n_equations - needed) * float(six @ six)
        covariance = noise * (kept @ kept.T)
    q = symmetric(six)
    spectrum, axes = np.linalg.eigh(q)
    if spectrum[0] <= FLATTEST * spectrum[-1]:
        why = (
            "the views turn too little for the noise"
            if spectrum[0] > -NEARLY_FLAT * spectrum[-1]
            else "the cameras are far from orthographic (close to the object), or it is not rigid"
        )
        return _impossible(
            f"no orthographic cameras explain the motion (the metric's eigenvalues are "
            f"{', '.join(f'{v:.2g}' for v in spectrum)}, all must be positive): {why}"
        )
    found = Upgrade(axes * np.sqrt(spectrum), "", covariance)
    stretches = [_stretch(found, axis) for axis in np.eye(3)]
    if max(stretches) > LOOSEST:
        return _impossible(
            f"sizes along one direction are uncertain by a factor of {1.0 + max(stretches):.2g}: views from other "
            "directions or more exact tracks are needed, or the cameras are far from orthographic"
        )
    return found


def shape_covariance(found: Upgrade, structure: FloatArray) -> FloatArray:
    """What the uncertainty of Q adds to the covariance of metric points (P, 3), (P, 3, 3).

    With A A' = Q + dQ the points s = A^-1 s_affine move by -E s / 2, E = A^-1 dQ A^-T, up to a rotation.
    """
    moves = np.stack(
        [-0.5 * structure @ _strain(found, six) for six in np.eye(N_UNKNOWNS)], axis=-1
    )
    return np.asarray(np.einsum("pia,ab,pjb->pij", moves, found.covariance, moves, optimize=True))


def _strain(found: Upgrade, six: FloatArray) -> FloatArray:
    back = np.linalg.inv(found.matrix) if found.matrix is not None else np.eye(3)
    return np.asarray(back @ symmetric(six) @ back.T)


def _stretch(found: Upgrade, axis: FloatArray) -> float:
    """Standard deviation of the relative size along an axis of the metric frame."""
    slopes = np.array([0.5 * axis @ _strain(found, six) @ axis for six in np.eye(N_UNKNOWNS)])
    return float(np.sqrt(max(slopes @ found.covariance @ slopes, 0.0)))


def _impossible(message: str) -> Upgrade:
    return Upgrade(None, message, np.zeros((N_UNKNOWNS, N_UNKNOWNS)))


def first_frame_axes(rows: FloatArray, structure: FloatArray) -> FloatArray:
    """Orthogonal (3, 3): image x, image y and depth of a camera (2, 3).

    Depth may as well be mirrored: the sign is that which makes the first point with a clear depth positive.
    """
    i = rows[0] / np.linalg.norm(rows[0])
    j = rows[1] - (rows[1] @ i) * i
    j /= np.linalg.norm(j)
    depth = np.cross(i, j)
    heights = structure @ depth
    clear = np.flatnonzero(np.abs(heights) > CLEAR_DEPTH * np.abs(heights).max())
    sign = np.sign(heights[clear[0]]) if len(clear) else 1.0
    return np.stack([i, j, sign * depth])


def products(a: FloatArray, b: FloatArray) -> FloatArray:
    """Coefficients of a'Qb in the six numbers of Q (11, 12, 13, 22, 23, 33)."""
    cross = a[:, :, None] * b[:, None, :]
    both = cross + np.swapaxes(cross, 1, 2)
    return np.stack(
        [
            cross[:, 0, 0],
            both[:, 0, 1],
            both[:, 0, 2],
            cross[:, 1, 1],
            both[:, 1, 2],
            cross[:, 2, 2],
        ],
        axis=1,
    )


def symmetric(six: Any) -> FloatArray:
    a, b, c, d, e, f = six
    return np.array([[a, b, c], [b, d, e], [c, e, f]])
