"""What the ladder leaves: one log that grows, and one archive that is written anew with each step.

Whenever the ladder is cut off, both are there, with all that was said until then.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Follower", "Journal"]

LOG, ARCHIVE = "ladder.log", "ladder.tar.gz"
SHOWN_BYTES = 1 << 20
"""Of what one step says, so much is shown; the archive has more."""
KEPT_BYTES = 8 << 20
"""The last of each file that the archive has."""


class Journal:
    """Says lines to our output and to the log in ``out``; packs the files below ``work``."""

    def __init__(self, out: Path, work: Path) -> None:
        self._out, self._work = out, work
        out.mkdir(parents=True, exist_ok=True)
        (out / LOG).write_bytes(b"")

    def say(self, text: str = "") -> None:
        """Say it at once."""
        with (self._out / LOG).open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{text}\n")
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), flush=True)

    def pack(self) -> None:
        """Write the archive, at once or not at all."""
        half = self._out / f"{ARCHIVE}.part"
        with tarfile.open(half, "w:gz", compresslevel=3) as archive:
            for file in sorted(self._work.rglob("*")):
                if file.is_file():
                    self._add(archive, file)
        os.replace(half, self._out / ARCHIVE)

    def _add(self, archive: tarfile.TarFile, file: Path) -> None:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - KEPT_BYTES))
            content = opened.read(KEPT_BYTES)
        info = tarfile.TarInfo(file.relative_to(self._work).as_posix())
        info.size, info.mtime = len(content), int(file.stat().st_mtime)
        archive.addfile(info, io.BytesIO(content))


class Follower:
    """Shows what a process writes to a file, line by line, as it comes."""

    def __init__(self, journal: Journal, file: Path, prefix: str = "") -> None:
        self._journal, self._prefix = journal, prefix
        self._file = file.open("rb")
        self._rest, self._left = b"", SHOWN_BYTES

    def look(self) -> None:
        """Show the lines that are complete."""
        while self._left > 0 and (content := self._file.read(1 << 16)):
            self._left -= len(content)
            *lines, self._rest = (self._rest + content).split(b"\n")
            if self._left <= 0:
                lines.append(b"(more of this is in the archive)")
                self._rest = b""
            self._show(lines)

    def close(self) -> None:
        """Show the rest."""
        self.look()
        self._show(filter(None, [self._rest]))
        self._file.close()

    def _show(self, lines: Iterable[bytes]) -> None:
        texts = [f"{self._prefix}{line.decode('utf-8', 'replace').rstrip()}" for line in lines]
        if texts:
            self._journal.say("\n".join(texts))
