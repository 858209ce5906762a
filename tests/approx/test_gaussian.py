"""Equations (1), (2), (3), (7) of the approx paper against their literal form."""

import numpy as np
import pytest

from anabranch.approx.gaussian import (
    gain,
    lost_covariance,
    others,
    precision_of,
    reliability,
    tolerated_variance,
    worker_reliability,
)
from tests.approx import literal


def random_covariance(draw: np.random.Generator, keys: int) -> np.ndarray:
    factors = draw.normal(size=(keys, keys + 2))
    return factors @ factors.T / keys + 0.1 * np.eye(keys)


@pytest.mark.parametrize("seed", range(20))
def test_equations_agree_with_their_literal_form(seed: int) -> None:
    draw = np.random.default_rng(seed)
    keys = int(draw.integers(3, 15))
    covariance = random_covariance(draw, keys)
    mean, values = draw.normal(size=keys), draw.normal(size=keys)
    lost = sorted(draw.choice(keys, int(draw.integers(1, keys)), replace=False).tolist())
    observed = others(keys, lost)
    precision = precision_of(covariance)
    epsilon = float(draw.uniform(0.1, 2))

    means = mean[lost] + gain(precision, lost, observed) @ (values[observed] - mean[observed])
    variances = np.diag(lost_covariance(precision, lost))
    for place, key in enumerate(lost):
        expected = literal.conditional(mean, covariance, key, list(observed), values[observed])
        assert (means[place], variances[place]) == pytest.approx(expected, abs=1e-9)
        assert reliability(variances[place], epsilon) == pytest.approx(
            literal.reliability(expected[1], epsilon), abs=1e-9
        )
    assert worker_reliability(precision, lost, epsilon) == pytest.approx(
        literal.worker_reliability(covariance, lost, epsilon), abs=1e-9
    )


def test_an_empty_worker_is_certain() -> None:
    assert worker_reliability(np.eye(2), [], 0.1) == 1


def test_the_tolerated_variance_is_just_reliable_enough() -> None:
    assert reliability(np.array(tolerated_variance(0.7, 0.95)), 0.7) == pytest.approx(0.95)


def test_keys_that_repeat_one_another_can_be_inverted() -> None:
    precision = precision_of(np.ones((3, 3)))
    assert np.diag(lost_covariance(precision, [0])) == pytest.approx(0, abs=1e-5)
