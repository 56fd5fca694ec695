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

from delf.engine.matching import _encodings, _spellings
from delf.engine.redaction import Redactor

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


def main():
    rows = _rows()
    encoded = json.dumps(rows)
    print("secrets   start   event  print   1 MB   JSON    walk  | one by one        one pattern")
    print("             ms      µs     µs     ms   ms/MB  µs/row |  µs    ms           µs    ms")
    for count in (0, 1, 10, 50):
        secrets = _secrets(count)
        redactor = Redactor(secrets)
        stream = redactor.stream()
        forms = {form for text in secrets for form in (*_spellings(text), *_encodings(text))}
        pattern = re.compile("|".join(map(re.escape, sorted(forms))) or "(?!)")

        def start(secrets=secrets):
            re.purge()
            Redactor(secrets)

        print(
            f"{count:7d} {_cpu(start) * 1e3:7.2f} "
            f"{_cpu(lambda: _event(redactor), 20_000) * 1e6:7.2f} "
            f"{_cpu(lambda: stream.feed(_PRINTED), 20_000) * 1e6:6.2f} "
            f"{_cpu(lambda: redactor.text(_PROSE)) * 1e3:6.1f} "
            f"{_cpu(lambda: redactor.is_in(encoded.encode())) * 1e9 / len(encoded):7.1f} "
            f"{_cpu(lambda: redactor.value(rows)) * 1e6 / len(rows):7.2f} | "
            f"{_cpu(lambda: _one_by_one(forms, _PRINTED), 5_000) * 1e6:4.1f} "
            f"{_cpu(lambda: _one_by_one(forms, _PROSE)) * 1e3:5.1f} "
            f"{_cpu(lambda: pattern.search(_PRINTED), 2_000) * 1e6:12.1f} "
            f"{_cpu(lambda: pattern.search(_PROSE)) * 1e3:5.1f}"
        )


if __name__ == "__main__":
    main()
