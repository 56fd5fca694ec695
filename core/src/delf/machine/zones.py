"""The time zone of the machine, for scripts in a sandbox that does not know the zone."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Final

from delf.records import dataclass

_LOCAL: Final = Path("/etc/localtime")
_FOLDERS: Final = (Path("/usr/share/zoneinfo"), Path("/usr/lib/zoneinfo"), Path("/etc/zoneinfo"))


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone.

    Args:
        rule: The rule in the POSIX format of ``TZ``: ``CET-1CEST,M3.5.0,M10.5.0/3``.
        name: The IANA name, if known: ``Europe/Madrid``.
    """

    rule: str
    name: str = ""


def local_zone() -> Zone:
    """Return the time zone of the environment variable ``TZ``, else of this machine."""
    return _zone_of_variable(os.environ.get("TZ", ""))


@cache
def _zone_of_variable(tz: str) -> Zone:
    """Return the time zone for a value of ``TZ``; an empty value means the machine's zone."""
    path = _find_zone_file(tz.removeprefix(":"))
    if path is not None:
        rule = _read_posix_rule(path)
        if rule:
            return Zone(rule, _iana_name(path))
    elif tz:  # not a name such as "Europe/Berlin", but a rule such as "CET-1"
        return Zone(tz)
    # No rule is known, so take the machine's present offset from UTC.
    return Zone(_format_fixed_offset(time.localtime().tm_gmtoff))


def _find_zone_file(name: str) -> Path | None:
    """Return the file of a zone such as ``Europe/Berlin``; None if there is no such file.

    An empty name means the machine's zone.
    """
    if not name:
        return _LOCAL if _LOCAL.exists() else None
    paths = [Path(name)] if name.startswith("/") else [folder / name for folder in _FOLDERS]
    for path in paths:
        if path.is_file():
            return path
    return None


def _read_posix_rule(path: Path) -> str:
    """Return the POSIX rule in the footer of a time zone file; empty without a rule."""
    try:
        content = path.read_bytes()
        # The format's version follows the letters TZif. Files of version 1, which have a zero byte
        # there, have no footer.
        version = content[4:5]
        has_footer = content.startswith(b"TZif") and version >= b"2"
        if not has_footer:
            return ""
        return content.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _iana_name(path: Path) -> str:
    _, marker, name = str(path.resolve()).partition("zoneinfo/")
    return name if marker else ""


def _format_fixed_offset(seconds: int) -> str:
    """Return the POSIX rule for an offset from UTC: ``<+0530>-5:30`` for 19,800 seconds."""
    if seconds == 0:
        return "UTC0"
    # POSIX counts offsets westwards, so their sign is the opposite of the sign in the name.
    name_sign, offset_sign = ("+", "-") if seconds > 0 else ("-", "+")
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"<{name_sign}{hours:02}{minutes:02}>{offset_sign}{hours}:{minutes:02}"
