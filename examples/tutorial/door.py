"""Who comes through the door. A source is any function that yields rows."""

import time
from datetime import datetime, timezone


def events(count):
    for number in range(count):
        time.sleep(0.2)
        yield {
            "person": ["ada", "grace", "edsger"][number % 3],
            "opened": number % 2 == 0,
            "time": datetime.now(timezone.utc),
        }
