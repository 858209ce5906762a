"""The snapshots of one task in a folder: files of pieces, and for each snapshot a manifest.

A manifest names the pieces of its state, wherever they were written. It is written last and whole,
so a crash leaves the snapshots before it as they were; and a file of pieces is removed when no
remaining manifest names one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, unquote

from anabranch.disk.folder import Folder
from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume
from anabranch.snapshot.state import KeptPieces, Piece, State
from anabranch.stream.restart import SnapshotName

FORMAT = 1
WORTH = 0.5
"""A file of pieces of which less than this part is still in use is not referred to any more: what
is in use is written again, so that the file can go."""
_MANIFEST, _PIECES = "manifest", "pieces"
REMEDY = "Restore the folder, or drop the query and create it again."


@dataclass(frozen=True, slots=True)
class PiecePlace:
    """The place of a piece of `nbytes` bytes: a record of `size` bytes in `file`, from `offset`
    on.
    """

    file: str
    offset: int
    size: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    notes: dict[str, Any]
    places: tuple[PiecePlace, ...]

    @property
    def size(self) -> int:
        """The bytes of all pieces."""
        return sum(place.size for place in self.places)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(place.nbytes for place in self.places)

    @property
    def files(self) -> set[str]:
        return {place.file for place in self.places}


def _pattern(task: str) -> re.Pattern[str]:
    """A pattern of the names of its files: kind, epoch, number, site."""
    return re.compile(
        rf"{re.escape(quote(task, safe=''))}\.(\d+)\.(\d+)\.([^.]*)\.({_MANIFEST}|{_PIECES})"
    )


def remove_snapshots(folder: Folder, tasks: Iterable[str]) -> None:
    """Removes the snapshots of tasks that were dropped, or begin from the beginning. The manifests
    go first.
    """
    names = folder.names()
    for task in tasks:
        for file in sorted(filter(_pattern(task).fullmatch, names), key=_is_pieces):
            folder.remove(file)


def _is_pieces(file: str) -> bool:
    return file.endswith(_PIECES)


class SnapshotStore:
    """One thread at a time may use it. All calls may wait for the disk and raise StorageError,
    after which nothing has changed but that a file without a manifest may be left."""

    def __init__(self, folder: Folder, task: str, *, synced: bool = False) -> None:
        """`synced` means that snapshots outlive the machine's power, too."""
        self._folder = folder
        self._task = task
        self._synced = synced
        self._pattern = _pattern(task)
        self._written: dict[int, tuple[object, PiecePlace]] = {}
        """By the identity of what a piece stands for; of the newest snapshot of this process."""
        self._manifests: dict[SnapshotName, Manifest] = {}
        """Those that have been read or written."""

    def names(self) -> list[SnapshotName]:
        """The snapshots that are there, the oldest first."""
        matches = filter(None, map(self._pattern.fullmatch, self._folder.names()))
        return sorted(
            SnapshotName(int(one[1]), int(one[2]), unquote(one[3]))
            for one in matches
            if one[4] == _MANIFEST
        )

    # -- writing ---------------------------------------------------------------------------------

    def keep(self, name: SnapshotName, state: State) -> Manifest:
        """Keeps a snapshot. Once this returns, it is there whole, and as safe as it has to be."""
        known = self._worth_naming(state.pieces)
        missing = [piece for piece in state.pieces if id(piece.of) not in known]
        known |= self._write(self._file(name, _PIECES), missing)
        places = tuple(known[id(piece.of)] for piece in state.pieces)
        manifest = Manifest(dict(state.notes), places)
        self._folder.replace(self._file(name, _MANIFEST), record(_manifest_bytes(manifest)))
        self._written = {id(one.of): (one.of, known[id(one.of)]) for one in state.pieces}
        self._manifests[name] = manifest
        for piece in missing:
            piece.written()
        return manifest

    def _worth_naming(self, pieces: Sequence[Piece]) -> dict[int, PiecePlace]:
        """The pieces that were written before, without those in files that are mostly waste."""
        used = {id(one.of): self._written[id(one.of)][1] for one in pieces if self._has(one)}
        live: dict[str, int] = {}
        for place in used.values():
            live[place.file] = live.get(place.file, 0) + place.size
        worth = {file for file, size in live.items() if size >= WORTH * self._folder.size(file)}
        return {key: place for key, place in used.items() if place.file in worth}

    def _has(self, piece: Piece) -> bool:
        known = self._written.get(id(piece.of))
        return known is not None and known[0] is piece.of

    def _write(self, file: str, pieces: Sequence[Piece]) -> dict[int, PiecePlace]:
        if not pieces:
            return {}
        places: dict[int, PiecePlace] = {}
        offset = 0
        end = self._folder.append_to(file, 0)
        try:
            for piece in pieces:
                payload = self._payload(piece)
                data = record(payload)
                end.append(data)
                places[id(piece.of)] = PiecePlace(file, offset, len(data), len(payload))
                offset += len(data)
            if self._synced:
                end.sync()
        finally:
            end.close()
        return places

    def _payload(self, piece: Piece) -> bytes:
        """Made, or copied out of a file that is mostly waste."""
        return self._piece(self._written[id(piece.of)][1]) if self._has(piece) else piece.to_bytes()

    def _file(self, name: SnapshotName, kind: str) -> str:
        task, site = quote(self._task, safe=""), quote(name.site, safe="").replace(".", "%2E")
        return f"{task}.{name.epoch}.{name.number}.{site}.{kind}"

    # -- reading ---------------------------------------------------------------------------------

    def load(self, name: SnapshotName) -> KeptPieces | None:
        """The state; None if there is no such snapshot. Raises CannotResume if it is damaged."""
        manifest = self.manifest(name)
        if manifest is None:
            return None
        return KeptPieces(manifest.notes, [self._piece(place) for place in manifest.places])

    def piece(self, name: SnapshotName, number: int) -> bytes | None:
        """One piece; None if the snapshot is not there, or not any more: a later one may have taken
        its place meanwhile. Raises CannotResume if the piece is not there whole.
        """
        manifest = self.manifest(name)
        if manifest is None:
            return None
        if number >= len(manifest.places):
            raise self._damaged(self._file(name, _MANIFEST), f"it has no piece {number}")
        try:
            return self._piece(manifest.places[number])
        except CannotResume:
            if name in self.names():
                raise
            return None

    def manifest(self, name: SnapshotName) -> Manifest | None:
        if name not in self._manifests:
            file = self._file(name, _MANIFEST)
            data = self._folder.read(file)
            if data is None:
                return None
            payloads = read_records(data, self._folder.place(file)).payloads
            if not payloads:
                raise self._damaged(file, "it is not whole")
            self._manifests[name] = self._manifest_of(payloads[0], file)
        return self._manifests[name]

    def _manifest_of(self, data: bytes, file: str) -> Manifest:
        said = json.loads(data)
        if said["format"] != FORMAT:
            raise self._damaged(file, f"it was written in format {said['format']}, not {FORMAT}")
        return Manifest(said["notes"], tuple(PiecePlace(*place) for place in said["places"]))

    def _piece(self, place: PiecePlace) -> bytes:
        data = self._folder.read_at(place.file, place.offset, place.size)
        records = read_records(data, self._folder.place(place.file))
        if records.size != place.size or len(records.payloads) != 1:
            raise self._damaged(place.file, f"the piece at byte {place.offset} is not whole")
        return records.payloads[0]

    def _damaged(self, file: str, what: str) -> CannotResume:
        return CannotResume(what, place=self._folder.place(file), remedy=REMEDY)

    # -- letting go ------------------------------------------------------------------------------

    def keep_only(self, needed: Collection[SnapshotName]) -> None:
        """Removes all other snapshots, because nobody goes back to them. Manifests go first: one
        never names a piece that is gone.
        """
        for name in set(self.names()) - set(needed):
            self._folder.remove(self._file(name, _MANIFEST))
            self._manifests.pop(name, None)
        manifests = [self.manifest(name) for name in self.names()]
        files = {file for one in manifests if one for file in one.files}
        for file in filter(self._pattern.fullmatch, self._folder.names()):
            if _is_pieces(file) and file not in files:
                self._folder.remove(file)


def _manifest_bytes(manifest: Manifest) -> bytes:
    places = [list(asdict(place).values()) for place in manifest.places]
    return json.dumps({"format": FORMAT, "notes": manifest.notes, "places": places}).encode()
