"""Creations of queries get names that say which is the later one."""

from __future__ import annotations

import time
from uuid import uuid4

from anabranch.plan.runs import run_name


def new_run() -> str:
    return run_name(time.time_ns() // 1000, uuid4().hex)
