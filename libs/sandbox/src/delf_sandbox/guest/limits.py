"""The limits that the guest, its host and other sandboxes apply in one way."""

from __future__ import annotations

from collections.abc import Mapping


class LimitReachedError(BaseException):
    """A script exceeded a limit.

    This is a BaseException, so that ``except Exception`` in the script does not catch it.
    """

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


class PrintLimits:
    """The limits on the printed text of each script.

    The guest and the host count the text separately.

    Args:
        limits: The values of all limits of the session, by the name of the limit.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._max_characters = int(limits["output_bytes"])
        self._character_count = 0

    def begin_script(self) -> None:
        """Reset the counts."""
        self._character_count = 0

    def count_text(self, text: str) -> str | None:
        """Count printed text. Return a message if a limit is exceeded, else None."""
        # Count characters: to count bytes, the text would have to be encoded first.
        self._character_count += len(text) or 1  # an empty print counts as one character
        if self._character_count > self._max_characters:
            return f"the script printed more than {self._max_characters:,} characters"
        return None


class FileLimits:
    """The limits on the number and size of a session's output files.

    The guest and the host count the files separately.

    Args:
        limits: The values of all limits of the session, by the name of the limit.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.file_bytes = int(limits["file_bytes"])
        self._total_bytes = int(limits["total_file_bytes"])
        self._max_files = int(limits["max_files"])
        self._byte_count = self._file_count = 0

    def count_chunk(self, name: str, size: int, added: int, *, complete: bool) -> str | None:
        """Count a chunk of a file. Return a message if a limit is exceeded, else None.

        Args:
            name: The file's name.
            size: The size of the file in bytes, up to and including this chunk.
            added: The size of this chunk in bytes.
            complete: Whether this chunk is the last one of the file.
        """
        self._byte_count += added
        if complete:
            self._file_count += 1
        if size > self.file_bytes:
            return f"{name[:80]!r} has {size:,} bytes; at most {self.file_bytes:,} are allowed"
        if self._byte_count > self._total_bytes:
            return f"the output files together pass {self._total_bytes:,} bytes"
        if self._file_count > self._max_files:
            return f"at most {self._max_files:,} output files are allowed"
        return None
