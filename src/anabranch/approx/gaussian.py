"""The approx paper's model: window results of all keys are one Gaussian, so the results of lost
keys follow from the others. Equations (1), (2), (3) and (7).

Everything is computed from the precision matrix P = Σ⁻¹: the covariance of lost keys A given all
others is inv(P_AA), which costs the size of A alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Keys = Sequence[int] | Indices


def precision_of(covariance: Floats) -> Floats:
    """Σ⁻¹, symmetric to the bit. Keys that repeat one another exactly leave Σ singular; then just
    enough is added to the diagonal to make it invertible.
    """
    scale = float(np.mean(np.diag(covariance))) or 1.0
    for jitter in (0.0, 1e-12, 1e-9, 1e-6):
        try:
            factor = linalg.cho_factor(covariance + jitter * scale * np.eye(len(covariance)))
        except linalg.LinAlgError:
            continue
        inverse = linalg.cho_solve(factor, np.eye(len(covariance)))
        return np.asarray((inverse + inverse.T) / 2)
    raise ValueError("the covariance matrix is not positive definite")


def others(count: int, lost: Keys) -> Indices:
    return np.setdiff1d(np.arange(count), lost)


def lost_covariance(precision: Floats, lost: Keys) -> Floats:
    """Σ_{A|o} (2) of all lost keys together, given every other key."""
    index = np.asarray(lost, dtype=np.intp)
    return np.asarray(linalg.inv(precision[np.ix_(index, index)]))


def gain(precision: Floats, lost: Keys, observed: Keys) -> Floats:
    """Σ_{AO} Σ_{OO}⁻¹ of (1), where `observed` are all keys that are not lost."""
    index = np.asarray(lost, dtype=np.intp)
    seen = np.asarray(observed, dtype=np.intp)
    return np.asarray(-lost_covariance(precision, index) @ precision[np.ix_(index, seen)])


def reliability(variance: Floats, epsilon: float) -> Floats:
    """R (3): the probability that a value lies within ε of its conditional mean."""
    return np.asarray(special.erf(epsilon / np.sqrt(2 * np.maximum(variance, 1e-300))))


def tolerated_variance(epsilon: float, confidence: float) -> float:
    """The variance with which R is just `confidence`."""
    return float((epsilon / normal_quantile(confidence)) ** 2)


def normal_quantile(confidence: float) -> float:
    """The z for which a standard normal value lies within ±z with this probability."""
    return float(np.sqrt(2) * special.erfinv(confidence))


def worker_reliability(precision: Floats, keys: Keys, epsilon: float) -> float:
    """R(A_i) (7): the reliability of its least reliable key once all are lost; 1 if it has none."""
    if len(keys) == 0:
        return 1.0
    return float(reliability(np.diag(lost_covariance(precision, keys)), epsilon).min())
