"""A Spark job learns what its table says, as the same model learnt here would."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from pyspark.sql import SparkSession

from anabranch.approx.model import learn
from anabranch.errors import SiteError
from anabranch.link.messages import LearnModel
from anabranch.plan.spec import Call
from anabranch.site import learning
from anabranch.site.learning import learn_model
from bench.systems.postgres import Postgres
from tests.approx.test_model import sensors

SLIDE = 100


def asked(postgres: Postgres, newest: int, oldest: int = 0) -> LearnModel:
    return LearnModel(
        sink=Call(name="postgres", options={"url": postgres.url, "table": "history"}),
        streams="q/%",
        key_columns=("room", "n"),
        value="x",
        keys=[["a", key] for key in range(12)],
        oldest=oldest,
        newest=newest,
        slide=SLIDE,
    )


@pytest.mark.spark
def test_by_a_job_and_here(
    spark: SparkSession, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = sensors(1)
    values[np.random.default_rng(0).uniform(size=values.shape) < 0.05] = np.nan
    values[0, 0] = 20.0  # so that the first window is there
    postgres.execute(
        "CREATE TABLE history (room text, n bigint, x double precision, estimated boolean,"
        " _stream text, _ts bigint)"
    )
    rows = [
        f"('a', {key}, {x!r}, false, 'q/{key % 2 + 1}', {(row + 1) * SLIDE})"
        for row, window in enumerate(values.tolist())
        for key, x in enumerate(window)
        if not np.isnan(x)
    ]
    rows += ["('a', 3, 99, true, 'q/estimated', 500)", "('a', 3, 99, false, 'other/1', 500)"]
    postgres.execute(f"INSERT INTO history VALUES {', '.join(rows)}")
    monkeypatch.setattr(learning, "BLOCK", 70)
    answer = learn_model(spark, asked(postgres, 300 * SLIDE))
    late = learn_model(spark, asked(postgres, 300 * SLIDE, oldest=101 * SLIDE))
    postgres.execute("DROP TABLE history")
    assert (answer.windows, late.windows) == (300, 200)
    with np.load(io.BytesIO(base64.b64decode(answer.arrays)), allow_pickle=False) as found:
        here = learn(values)
        assert found["mean"] == pytest.approx(here.mean)
        assert found["sample"] == pytest.approx(here.sample)
        assert found["spread"] == pytest.approx(here.spread)
    assert answer.shrinkage == pytest.approx(here.shrinkage)


@pytest.mark.spark
def test_a_table_that_is_not_there(spark: SparkSession, postgres: Postgres) -> None:
    with pytest.raises(SiteError, match='relation "history" does not exist'):
        learn_model(spark, asked(postgres, 100))


def test_pieces_cover_every_window_once() -> None:
    for count in (1, 499, 500, 501, 1700):
        pieces = learning._pieces(300, 300 + (count - 1) * SLIDE, SLIDE)
        ends = [end for start, last in pieces for end in range(start, last + 1, SLIDE)]
        assert ends == list(range(300, 300 + count * SLIDE, SLIDE))
    assert len(learning._pieces(0, 10**6 * SLIDE, SLIDE)) <= learning.BLOCKS
