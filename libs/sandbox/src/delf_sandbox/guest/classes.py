"""Classes of scripts that mix what the replayed calendar is made of with another metaclass."""

from __future__ import annotations

import builtins
import datetime as dt
from typing import Any

_real: Any = builtins.__build_class__


def build_class(function: Any, name: str, /, *bases: Any, **options: Any) -> Any:
    """Carries out a ``class`` statement.

    ``class Day(date, Enum)`` is right with the real ``date``, which has no metaclass of its own.
    """
    ours = type(dt.date)
    if ours is not type and any(isinstance(base, ours) for base in bases):
        wanted = [options.get("metaclass", type), *map(type, bases)]
        kinds = list(dict.fromkeys(kind for kind in wanted if isinstance(kind, type)))
        least = [k for k in kinds if not any(o is not k and issubclass(o, k) for o in kinds)]
        if len(least) > 1:
            least.sort(key=lambda kind: kind is ours)
            options["metaclass"] = type(f"{least[0].__name__}Alike", tuple(least), {})
    return _real(function, name, *bases, **options)
