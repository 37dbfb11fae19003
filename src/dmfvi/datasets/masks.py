"""What goes missing: at random, by value, and by what hides a point from a camera. All seeded."""

from __future__ import annotations

import numpy as np

from dmfvi.linalg import FloatArray


def mask_at_random(data: FloatArray, rate: float, *, seed: int = 0) -> FloatArray:
    """A copy with each entry missing (NaN) independently with probability ``rate`` (MAR).

    Parameters
    ----------
    data : array (n, p)
        Complete data.
    rate : float
        Probability of a missing entry.
    seed : int
        Of the random numbers.
    """
    rng = np.random.default_rng(_checked(rate, seed))
    return np.where(rng.random(data.shape) < rate, np.nan, data)


def mask_points_at_random(tracks: FloatArray, rate: float, *, seed: int = 0) -> FloatArray:
    """Tracks (2F, P) with each point missing in each frame with probability ``rate``, x and y together.

    Parameters
    ----------
    tracks : array (2F, P)
        Complete tracks.
    rate : float
        Probability of a missing point.
    seed : int
        Of the random numbers.
    """
    rng = np.random.default_rng(_checked(rate, seed))
    unseen = rng.random((len(tracks) // 2, tracks.shape[1])) < rate
    return np.where(np.repeat(unseen, 2, axis=0), np.nan, tracks)


def mask_large_values(
    data: FloatArray, rate: float, *, sharpness: float = 3.0, seed: int = 0
) -> FloatArray:
    """A copy in which large entries of each column go missing more often (MNAR), ``rate`` of all on average.

    The chance grows with the standardised value v like a logistic curve, 1/(1 + exp(c - sharpness v)).

    Parameters
    ----------
    data : array (n, p)
        Complete data.
    rate : float
        Part of missing entries, on average.
    sharpness : float
        How fast the chance grows with the standardised value.
    seed : int
        Of the random numbers.
    """
    rng = np.random.default_rng(_checked(rate, seed))
    standard = (data - np.nanmean(data, axis=0)) / np.nanstd(data, axis=0)
    if rate == 0:
        return data.copy()

    def chance(offset: float) -> FloatArray:
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(offset - sharpness * standard, -700, 700))))

    low, high = -50.0 * sharpness, 50.0 * sharpness
    for _ in range(100):  # bisection: the mean chance falls with the offset
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.nanmean(chance(middle)) > rate else (low, middle)
    return np.where(rng.random(data.shape) < chance(low), np.nan, data)


def mask_by_depth(
    tracks: FloatArray, depth: FloatArray, rate: float, *, seed: int = 0
) -> FloatArray:
    """Recorded tracks (2F, P) with the losses that an object's own body causes: a point is gone while it is far.

    ``depth`` (F, P) grows away from the camera. Each lost point is lost for one contiguous run of frames around
    the frame in which it lies deepest; points and lengths are drawn with chances that grow with depth until
    ``rate`` of all entries is gone. Two frames at least are kept of every point.

    Parameters
    ----------
    tracks : array (2F, P)
        Complete tracks.
    depth : array (F, P)
        Distance from the camera.
    rate : float
        Part of all entries that is lost.
    seed : int
        Of the random numbers.
    """
    rng = np.random.default_rng(_checked(rate, seed))
    n_frames, n_points = depth.shape
    if tracks.shape != (2 * n_frames, n_points):
        raise ValueError(
            f"depth of shape {depth.shape} belongs to tracks of shape {(2 * n_frames, n_points)}, "
            f"received {tracks.shape}"
        )
    gone = np.zeros(depth.shape, dtype=bool)
    ranks = depth.max(0).argsort().argsort() / max(n_points - 1, 1)  # 1: the deepest point
    order = np.argsort(-(ranks + 0.3 * rng.standard_normal(n_points)))
    wanted = rate * depth.size
    while gone.sum() < wanted:
        before = int(gone.sum())
        for point in order:
            length = int(rng.integers(max(1, n_frames // 6), max(2, n_frames // 2)))
            length = min(length, n_frames - 2, round(wanted - gone.sum()))
            if length <= 0:
                break
            first = int(np.clip(depth[:, point].argmax() - length // 2, 0, n_frames - length))
            trial = gone[:, point].copy()
            trial[first : first + length] = True
            if trial.sum() <= n_frames - 2:
                gone[:, point] = trial
        if gone.sum() == before:
            break  # everything that may go is gone
    return np.where(np.repeat(gone, 2, axis=0), np.nan, tracks)


def _checked(rate: float, seed: int) -> int:
    if not 0 <= rate < 1:
        raise ValueError(f"rate must lie in [0, 1), received {rate!r}")
    return seed
