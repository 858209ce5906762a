"""The approx paper's figure 8, to the number: six sensors, two workers, windows of 10 every 5.

B dies at 16 and is back at 19. Its windows [10, 20) and [15, 25) are lost; what stands in their
place is equation (1) of the model, given A's values in the same window. (The paper calls the window
behind them [20, 25); with a width of 10 it is [20, 30).)"""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.approx.calibration import Calibration
from anabranch.approx.model import Model
from anabranch.approx.plan import EstimationPlan, Promise
from anabranch.coordinator.approximate.models import LearntModel
from anabranch.coordinator.approximate.results import Result
from anabranch.coordinator.approximate.state import ApproximateState
from anabranch.plan.approximate import replaced
from tests.approx.literal import conditional
from tests.coordinator.test_approximate import made

ENDS = (10, 15, 20, 25, 30)
FIGURE: dict[str, tuple[int | None, ...]] = {
    "X1": (21, 21, 22, 23, 23),
    "X2": (19, 20, 20, 22, 22),
    "X3": (20, 20, 21, 22, 23),
    "X4": (18, 19, None, None, 21),
    "X5": (19, 19, None, None, 22),
    "X6": (21, 22, None, None, 23),
}
A, B = list(FIGURE)[:3], list(FIGURE)[3:]
MEAN = np.array([21.0, 20.0, 20.5, 19.0, 20.0, 22.0])
COVARIANCE = np.full((6, 6), 1.8) + 0.2 * np.eye(6)


def known_model() -> LearntModel:
    """The paper's database has it from the beginning."""
    model = Model(MEAN, COVARIANCE, 0.0, np.ones(6), np.ones(6))
    bound = np.full((2, 6), 0.9)
    calibration = Calibration(np.zeros((2, 6)), bound, bound[0])
    plan = EstimationPlan(
        Promise(1.0, 0.95, 2), model, 0.0, [[0, 1, 2], [3, 4, 5]], calibration, bound[0]
    )
    return LearntModel(1, "", 100, [(key,) for key in FIGURE], plan)


def of(keys: list[str], stream: str, *ends: int) -> list[Result]:
    values = [(end, key, FIGURE[key][ENDS.index(end)]) for end in ends for key in keys]
    return [Result(stream, end, (key,), float(x), False) for end, key, x in values if x is not None]


def test_figure_8() -> None:
    asked = made().asked.model_copy(update={"epsilon": 1.0, "confidence": 0.95})
    query = made().model_copy(update={"asked": asked, "width_us": 10, "slide_us": 5})
    state = ApproximateState(query)
    state.go_on_with(known_model())
    sink = of(A, "q/1", 10, 15) + of(B, "q/2", 10, 15)
    state.take(sink)
    state.found(1, dead=True)  # at 16
    assert state.due() == []
    state.replaced(replaced(query, 1, "one", since=30))  # at 19
    assert state.recovery.damaged(1) == [20, 25]
    for end in (20, 25):
        came = of(A, "q/1", end)
        state.take(came)
        (one,) = state.due()
        found = state.estimate(one)
        assert one.end == end
        assert [estimate.key for estimate in found] == [(key,) for key in B]
        for estimate in found:
            place = list(FIGURE).index(estimate.key[0])
            seen = np.array([result.value for result in came])
            wanted, _ = conditional(MEAN, COVARIANCE, place, [0, 1, 2], seen)
            assert estimate.value == pytest.approx(wanted, abs=1e-9)
        sink += came + [Result("q/estimated", end, e.key, e.value, True) for e in found]
        state.wrote(one, len(found))
    assert not state.recovery.recovering  # as soon as [15, 25) is out
    last = of(A, "q/1", 30) + of(B, "q/2.2", 30)
    state.take(last)
    sink += last
    table = {(one.key[0], one.end): one.value for one in sink}
    assert len(table) == len(sink) == 30
    for key, values in FIGURE.items():
        for end, value in zip(ENDS, values, strict=True):
            assert value is None or table[key, end] == value
    # A rose by 1 at the mean from [5, 15) to [10, 20): so do the estimates, as the model has it
    gain = 3 * 1.8 / (2.0 + 2 * 1.8)
    assert table["X4", 20] == pytest.approx(19 + gain * (21 - 20.5), abs=1e-9)
    assert table["X6", 25] == pytest.approx(22 + gain * (67 / 3 - 20.5), abs=1e-9)
