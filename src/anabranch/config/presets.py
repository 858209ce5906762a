"""What holds unless a user says otherwise, and settings for our own environments."""

from __future__ import annotations

from pathlib import Path

DEFAULT_STATE = Path(".anabranch")
"""Where a running system keeps its state, seen from where it was started."""
YOUNG_JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Where several JVMs share a small machine for a few minutes: their optimising compilers would take
two fifths of the CPU time, and give little back in that time. What runs for long is two or
three times as fast with them."""
