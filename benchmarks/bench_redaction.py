"""What it costs to take secrets out: an event, a large text, an agent's start.

CPU time of this process. The last columns are what else could be done: to look for each form
of each secret by itself, and one pattern that names them all.
"""

from __future__ import annotations

import json
import random
import re
import string
import time

from delf.engine.secrets.matching import _encodings, _spellings
from delf.engine.secrets.redaction import Redactor

_SMALL = {
    "action": "shop.find_orders",
    "arguments": {"customer": "Ada Lovelace", "limit": 20, "newest_first": True},
    "description": "Orders of the customer who asked for an invoice",
    "error": None,
    "call_id": 17,
}
_PRINTED = "order 4711 of Ada Lovelace costs 12.50 EUR and was sent on 3 May\n"
_PROSE = ("The quick brown fox jumps over 13 lazy dogs; order 4711 costs 12.50 EUR.\n" * 14_000)[
    :1_000_000
]


def _secrets(count):
    chance = random.Random(count)
    letters = string.ascii_letters + string.digits
    return ["".join(chance.choices(letters, k=chance.choice((20, 32, 48)))) for _ in range(count)]


def _rows():
    chance = random.Random(1)
    return [
        {"id": number, "name": f"Ada {number}", "key": f"{chance.getrandbits(64):016x}"}
        for number in range(18_000)
    ]


def _cpu(work, times=1):
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - started) / times)
    return best


def _event(redactor):
    if redactor:
        clean = redactor.value
        return {name: clean(value) for name, value in _SMALL.items()}
    return _SMALL


def _one_by_one(forms, text):
    return any(form in text for form in forms)


def _start(secrets):
    re.purge()
    Redactor(secrets)


def _measure(count, rows, encoded):
    secrets = _secrets(count)
    redactor = Redactor(secrets)
    feed = redactor.stream().feed
    forms = {form for text in secrets for form in (*_spellings(text), *_encodings(text))}
    search = re.compile("|".join(map(re.escape, sorted(forms))) or "(?!)").search
    return (
        _cpu(lambda: _start(secrets)) * 1e3,
        _cpu(lambda: _event(redactor), 20_000) * 1e6,
        _cpu(lambda: feed(_PRINTED), 20_000) * 1e6,
        _cpu(lambda: redactor.text(_PROSE)) * 1e3,
        _cpu(lambda: redactor.is_in(encoded)) * 1e9 / len(encoded),
        _cpu(lambda: redactor.value(rows)) * 1e6 / len(rows),
        _cpu(lambda: _one_by_one(forms, _PRINTED), 5_000) * 1e6,
        _cpu(lambda: _one_by_one(forms, _PROSE)) * 1e3,
        _cpu(lambda: search(_PRINTED), 2_000) * 1e6,
        _cpu(lambda: search(_PROSE)) * 1e3,
    )


_HEAD = """\
                                  1 MB               a    one by one       one pattern
secrets   start   event   print   prose    JSON     row   print    1 MB   print    1 MB
             ms      us      us      ms   ms/MB      us      us      ms      us      ms"""


def main():
    rows = _rows()
    encoded = json.dumps(rows).encode()
    print(_HEAD)
    for count in (0, 1, 10, 50):
        numbers = " ".join(f"{number:7.2f}" for number in _measure(count, rows, encoded))
        print(f"{count:7d} {numbers}")


if __name__ == "__main__":
    main()
