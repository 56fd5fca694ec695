"""`kill -9` at random moments, in both ways: the same end, and no call twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["replay", "session"])
def test_killed_at_random_moments(way: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.stream_worker", way, str(tmp_path), "5", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == 5
    assert any(is_killed for _, is_killed, _, _ in rounds)
    for seconds, _, answer, written in rounds:
        assert answer == "All are noted.", seconds
        assert sorted(written) == ["Ann", "Bob", "Cem", "Dan"], seconds
