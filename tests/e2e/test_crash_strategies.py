"""A task of any strategy goes on after `kill -9`: the same end, and nothing written twice."""

import json
from pathlib import Path

import pytest

from support.program import run

WORKER = Path(__file__).with_name("strategy_worker.py")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["call", "execute", "codegen"])
def test_killed_after_every_fifth_event(kind: str, tmp_path: Path) -> None:
    done = run([WORKER, kind, tmp_path], text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (_, answer, written), *killed = map(json.loads, done.stdout.splitlines())
    assert written == sorted({*written})
    assert len(killed) >= 4
    assert [(end, text, notes) for end, text, notes in killed] == [
        (end, answer, written) for end, _, _ in killed
    ]
