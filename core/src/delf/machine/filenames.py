"""Names of output files that stay inside the output folder on every system."""

from __future__ import annotations

import re
import unicodedata

_MAX_NAME = 200
_MAX_PART_BYTES = 200
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")
_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])", re.IGNORECASE)
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def check_file_name(name: object) -> str:
    """Check that a relative name stays inside the output folder on every system, and return it.

    The returned name is in the Unicode form NFC, so that names that look the same are the same.

    Refused are:

    - absolute names and ``..``
    - control and invisible characters, because some of them reverse the reading direction and can
      hide a suffix
    - characters that look like a separator or a dot, or that Windows does not allow, such as ``?``
    - names of devices, and parts that are too long for a file system
    - names that programs take for settings (``.bashrc``, ``.git/hooks/pre-commit``) or for options
      (``-rf``)

    Raises:
        ValueError: If the name is refused.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError("an output file needs a name")
    if not _is_valid_name(name):
        raise ValueError(
            f"{name[:80]!r} cannot be an output file's name; use a plain name such as 'report.csv'"
        )
    return unicodedata.normalize("NFC", name)


def _is_valid_name(name: str) -> bool:
    if len(name) > _MAX_NAME or name.startswith("~"):
        return False
    return all(map(_is_valid_part, name.split("/")))


def _is_valid_part(part: str) -> bool:
    """Return True if a path component is valid on every system and has no misleading characters."""
    if not part or part != part.strip() or part.endswith("."):
        return False
    if any(unicodedata.category(letter) in _INVISIBLE for letter in part):
        return False
    folded = unicodedata.normalize("NFKC", part)
    if _BAD_NAME.search(folded) or "/" in folded or folded.startswith((".", "-")):
        return False
    # Windows reserves the names of devices with any suffix, such as con.txt.
    stem, _, _ = folded.partition(".")
    if _DEVICES.fullmatch(stem.strip()):
        return False
    return len(part.encode()) <= _MAX_PART_BYTES
