"""A state server as its site sees it: a process of its own."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from anabranch.errors import SiteError
from anabranch.plan.stage import Stage
from anabranch.stage.messages import Address

START_S = 60.0


class ServerProcess:
    """A process that is started at once. It ends with `close`, or with us."""

    def __init__(self, stage: Stage, sample: pa.Schema, folder: Path | None) -> None:
        token = secrets.token_hex(16)
        order = {
            "stage": stage.model_dump(mode="json"),
            "sample": base64.b64encode(sample.serialize().to_pybytes()).decode(),
            "folder": str(folder) if folder else None,
            "token": token,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "anabranch.stage.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):  # it has ended: then it says nothing
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        late = threading.Timer(START_S, self._process.kill)
        late.daemon = True
        late.start()
        port = self._process.stdout.readline().strip()
        late.cancel()
        if not port:
            self._end()
            raise SiteError("the state server did not start", remedy="See the site's log.")
        self.address = Address(port=int(port), token=token)
        self.peer = self.address.peer()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it. Nothing is written any more: what is not in a checkpoint is read again. Calling
        it again does no harm.
        """
        self.peer.close()
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()
