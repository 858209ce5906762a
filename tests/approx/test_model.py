"""What is learnt, and what does not spoil it; bounds; estimates."""

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from anabranch.approx.calibration import (
    Settings,
    calibrate,
    lost_residuals,
    misses,
    quantile,
    rehearse,
)
from anabranch.approx.estimate import Estimator
from anabranch.approx.model import Here, WindowBlock, learn, learn_from
from anabranch.approx.plan import Promise, plan
from tests.approx import literal


def sensors(seed: int, windows: int = 300, keys: int = 12, drift: float = 0.0) -> np.ndarray:
    """Two slow causes that all keys follow, and noise of each key's own that persists."""
    draw = np.random.default_rng(seed)
    causes = np.cumsum(draw.normal(size=(windows, 2)), axis=0) * 0.3
    own = np.zeros((windows, keys))
    for t in range(1, windows):
        own[t] = 0.8 * own[t - 1] + 0.1 * draw.normal(size=keys)
    slope = 1 + drift * np.arange(windows)[:, None] / windows
    return 20 + slope * (causes @ draw.normal(1, 0.3, size=(2, keys))) + own


def test_missing_values_are_taken_for_what_the_others_make_of_them() -> None:
    values = sensors(1)
    holes = values.copy()
    draw = np.random.default_rng(2)
    holes[draw.uniform(size=values.shape) < 0.1] = np.nan
    whole, holed = learn(values), learn(holes)
    assert holed.mean == pytest.approx(whole.mean, abs=0.1)
    assert np.abs(holed.completed(holes) - values).max() < 1.5
    assert np.abs(holed.covariance - whole.covariance).max() < 0.1 * whole.covariance.max()


def test_glitches_do_not_poison_the_model() -> None:
    values = sensors(3)
    glitched = values.copy()
    draw = np.random.default_rng(4)
    for _ in range(20):
        glitched[draw.integers(300), draw.integers(12)] = -40
    clean, spoilt = learn(glitched), learn(glitched, clean=False)
    truth = learn(values)

    def far(model):
        return np.abs(model.covariance - truth.covariance).max()

    assert far(clean) < 0.2 * far(spoilt)


def test_a_key_without_any_value_tells_nothing() -> None:
    values = sensors(5)
    values[:, 3] = np.nan
    model = learn(values)
    assert np.isfinite(model.precision).all()


def test_refresh_follows_a_shift() -> None:
    model = learn(sensors(6))
    moved = np.tile(model.mean + 3, (200, 1))
    assert model.refreshed(moved, 0.05).mean == pytest.approx(model.mean + 3, abs=0.01)


def test_lost_residuals_are_equation_1() -> None:
    values = sensors(7, 50)
    model = learn(values)
    workers = [[0, 5, 7], [1, 2], [3, 4, 6, 8, 9, 10, 11]]
    residuals = lost_residuals(model, workers, values[:3])
    for worker in workers:
        observed = [key for key in range(12) if key not in worker]
        for key in worker:
            for row in range(3):
                mean, _ = literal.conditional(
                    model.mean, model.covariance, key, observed, values[row, observed]
                )
                assert residuals[row, key] == pytest.approx(values[row, key] - mean, abs=1e-8)


def test_the_conformal_quantile() -> None:
    """The ⌈(n + 1)·c⌉-th smallest of n; none if there are too few."""
    off = np.arange(1.0, 20)[:, None]
    assert quantile(off, 0.9).tolist() == [18.0]
    assert quantile(off[:5], 0.9).tolist() == [np.inf]
    assert quantile(np.vstack([off, [[np.nan]]]), 0.9).tolist() == [18.0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_the_promise_is_kept_on_windows_not_seen(seed: int, drift: float) -> None:
    values = sensors(10 + seed, 600, drift=drift)
    made = plan(values[:400], Promise(0.5, 0.9, 3), 4)
    off = misses(
        rehearse(made.model, values[400:], 3, made.weight).residuals(made.workers),
        made.calibration.memory,
    )
    assert sum(made.estimable) == 4
    assert (off > 0.5).mean() <= 0.1
    assert (off > made.calibration.by_lag).mean() <= 0.15


def test_shrinkage_is_scikit_learns() -> None:
    values = sensors(2)
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    expected = LedoitWolf(assume_centered=True).fit(standard).shrinkage_
    assert learn(values, clean=False).shrinkage == pytest.approx(expected)


def test_a_history_in_blocks_teaches_the_same() -> None:
    values = sensors(1)
    values[np.random.default_rng(0).uniform(size=values.shape) < 0.05] = np.nan
    whole = learn(values)
    parts = learn_from(Here([WindowBlock(part, part) for part in np.array_split(values, 7)]))
    assert parts.mean == pytest.approx(whole.mean)
    assert parts.covariance == pytest.approx(whole.covariance)
    assert parts.spread == pytest.approx(whole.spread)
    assert parts.jump == pytest.approx(whole.jump, rel=0.1)  # the six between blocks are missing


def test_what_held_only_on_average_is_not_promised() -> None:
    """Misses of 1 in one of six blocks, of 0.1 in the others."""
    residuals = np.zeros((120, 2, 1))
    residuals[:, 1] = 0.1
    residuals[100:105, 1] = 1.0
    even = calibrate(residuals, (120,), 0.95, remember=False).bound
    blocks = calibrate(residuals, (20,) * 6, 0.95, remember=False).bound
    assert (even.tolist(), blocks.tolist()) == ([0.1], [1.0])


def test_glitches_do_not_spoil_rehearsals() -> None:
    values = sensors(13)
    glitched = values.copy()
    glitched[::10, 3] = -40
    rest = [key for key in range(12) if key != 3]
    made = plan(glitched, Promise(0.5, 0.9, 3), 4)
    usual = plan(values, Promise(0.5, 0.9, 3), 4)
    assert np.median(made.bounds[rest]) < 1.5 * np.median(usual.bounds[rest])


def test_a_rehearsal_does_not_look_ahead() -> None:
    """What comes after a death changes neither the model nor the estimate's last residual."""
    values = sensors(20, 60)
    model = learn(values[:30])
    changed = values.copy()
    changed[45:] += 5
    one = rehearse(model, values[30:], 3, 0.05).residuals([[0, 1], list(range(2, 12))])
    two = rehearse(model, changed[30:], 3, 0.05).residuals([[0, 1], list(range(2, 12))])
    assert np.array_equal(one[:12], two[:12])
    assert not np.array_equal(one[12], two[12])


def test_parts_can_be_switched_off() -> None:
    values = sensors(8)
    plain = plan(
        values, Promise(0.5, 0.9, 3), 4, settings=Settings(False, False, 0.0, False, False)
    )
    assert plain.weight == 0
    assert not plain.calibration.memory.any()


def test_estimates_are_what_was_rehearsed() -> None:
    values = sensors(9, 400)
    made = plan(values[:300], Promise(0.5, 0.9, 3), 4, settings=Settings(refresh=0.0))
    estimator = Estimator(made)
    residuals = rehearse(made.model, values[300:], 3, 0.0).residuals(made.workers)
    off = misses(residuals, made.calibration.memory)
    for death in range(0, 90, 7):
        for lag in (1, 2, 3):
            for worker, keys in enumerate(made.workers):
                window = values[300 + death + lag].copy()
                truth = window[sorted(keys)]
                window[keys] = np.nan
                found = estimator.estimate([worker], window, values[300 + death], lag)
                assert found.keys.tolist() == sorted(keys)
                assert np.abs(found.values - truth) == pytest.approx(
                    off[death, lag - 1, sorted(keys)], abs=1e-8
                )
                assert found.bounds == pytest.approx(made.calibration.by_lag[lag - 1, sorted(keys)])


def test_a_glitch_or_a_hole_among_the_survivors_widens_the_bound_a_little() -> None:
    values = sensors(11, 400)
    made = plan(values[:300], Promise(0.5, 0.9, 3), 4)
    estimator = Estimator(made)
    window = values[350].copy()
    lost = made.workers[0]
    truth = window[sorted(lost)]
    window[lost] = np.nan
    usual = estimator.estimate([0], window, values[349], 1)
    for value in (np.nan, -40.0):
        spoilt = window.copy()
        spoilt[made.workers[1][0]] = value
        found = estimator.estimate([0], spoilt, values[349], 1)
        assert np.abs(found.values - truth).max() < 0.5
        assert (found.bounds >= usual.bounds - 1e-12).all()


def test_two_workers_lost_at_once() -> None:
    values = sensors(12, 400)
    made = plan(values[:300], Promise(0.6, 0.9, 3, failures=2), 6)
    window = values[350].copy()
    lost = sorted(made.workers[0] + made.workers[3])
    window[lost] = np.nan
    found = Estimator(made).estimate([0, 3], window, values[349], 1)
    assert found.keys.tolist() == lost
    assert np.abs(found.values - values[350, lost]).max() < 1


def test_calibration_without_memory_forgets() -> None:
    residuals = np.random.default_rng(1).normal(size=(50, 4, 3))
    assert not calibrate(residuals, (25, 25), 0.9, remember=False).memory.any()
