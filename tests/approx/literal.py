"""The approx paper's equations (1), (2), (3), (7), (8), written down as they stand there."""

from itertools import combinations

import numpy as np
from scipy.stats import norm


def conditional(mean, covariance, key, observed, values):
    """(1) and (2) of one lost key."""
    yo = covariance[key, observed]
    inverse = np.linalg.inv(covariance[np.ix_(observed, observed)])
    return (
        mean[key] + yo @ inverse @ (values - mean[observed]),
        covariance[key, key] - yo @ inverse @ yo,
    )


def reliability(variance, epsilon):
    """(3)"""
    return norm.cdf(epsilon, 0, np.sqrt(variance)) - norm.cdf(-epsilon, 0, np.sqrt(variance))


def worker_reliability(covariance, worker, epsilon):
    """(7)"""
    observed = [key for key in range(len(covariance)) if key not in worker]
    zeros = np.zeros(len(covariance))
    return min(
        reliability(conditional(zeros, covariance, key, observed, zeros[observed])[1], epsilon)
        for key in worker
    )


def partitions(keys, sizes):
    if not sizes:
        yield []
        return
    for first in combinations(keys, sizes[0]):
        rest = [key for key in keys if key not in first]
        for others in partitions(rest, sizes[1:]):
            yield [list(first), *others]


def optimum(covariance, epsilon, confidence, sizes):
    """(8), by trying all."""
    return max(
        sum(worker_reliability(covariance, worker, epsilon) >= confidence for worker in made)
        for made in partitions(list(range(len(covariance))), sizes)
    )
