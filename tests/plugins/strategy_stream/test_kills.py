"""`kill -9` at random moments, in both ways: the same end, and no call twice."""

import json
import os
from pathlib import Path

import pytest

from support.program import run

TESTS = Path(__file__).parents[2]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["replay", "session"])
def test_randomly_killed_stream_repeats_and_loses_nothing(way: str, tmp_path: Path) -> None:
    command = ["-m", "plugins.strategy_stream.stream_worker", way, tmp_path, "5", "1"]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = run(command, cwd=TESTS, env=environ, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) >= 5
    assert any(is_killed for _, is_killed, _, _ in rounds)
    for seconds, _, answer, written in rounds:
        assert answer == "All are noted.", seconds
        assert sorted(written) == ["Ann", "Bob", "Cem", "Dan"], seconds
