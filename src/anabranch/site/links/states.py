"""Snapshots from one site to another: who goes on elsewhere begins with the state from there."""

from __future__ import annotations

from base64 import b64decode, b64encode

from anabranch.link.messages import FindState, ReadState, StateFound
from anabranch.link.network import Network
from anabranch.site.tasks.snapshots import States
from anabranch.snapshot.state import KeptPieces
from anabranch.stream.restart import SnapshotName

PORTION = 4_000_000
"""Bytes of one answer."""
CALL_S = 10.0


class StateExchange:
    """The exchange of a site that has these `states`."""

    def __init__(self, network: Network, states: States) -> None:
        self._network = network
        self._states = states

    async def fetch(self, task: str, name: SnapshotName) -> KeptPieces | None:
        """Fetches the state from the site that kept it; None if it is not there. Raises SiteError
        while that site is away.
        """
        state = await self._network.call(name.site, FindState(task, name), CALL_S)
        if state is None:
            return None
        pieces = []
        for number, size in enumerate(state.sizes):
            piece = await self._piece(task, name, number, size)
            if piece is None:
                return None
            pieces.append(piece)
        return KeptPieces(state.notes, pieces)

    async def _piece(self, task: str, name: SnapshotName, number: int, size: int) -> bytes | None:
        """One piece; None if a later snapshot has taken the place of this one meanwhile."""
        data = bytearray()
        while len(data) < size:
            request = ReadState(task, name, number, len(data))
            portion = await self._network.call(name.site, request, CALL_S)
            if portion is None:
                return None
            data += b64decode(portion)
        return bytes(data)

    async def find(self, request: FindState) -> StateFound | None:
        manifest = await self._states.manifest(request.task, request.name)
        if manifest is None:
            return None
        return StateFound(manifest.notes, manifest.sizes)

    async def read(self, request: ReadState) -> str | None:
        data = await self._states.read(request.task, request.name, request.piece)
        if data is None:
            return None
        return b64encode(data[request.offset : request.offset + PORTION]).decode()
