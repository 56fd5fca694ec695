"""Servers that end at random moments lose nothing, repeat nothing and mislead nobody.

However they end: killed, by SIGTERM with or without a time of grace, by one Ctrl-C or by two.
``DELF_TEST_SERVE_KILLS=300`` for a long run, with ``DELF_TEST_SERVE_SEED`` for other moments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

KILLS: Final = int(os.environ.get("DELF_TEST_SERVE_KILLS", "4"))
SEED: Final = os.environ.get("DELF_TEST_SERVE_SEED", "20261122")


ENDINGS: Final = "KILL/0,TERM/0,INT+INT/5,TERM/5,KILL/0,INT/0,TERM/1"


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize(
    ("servers", "journal_url"), [(1, "sqlite"), (2, "postgresql")], indirect=["journal_url"]
)
def test_killed_servers_lose_and_repeat_nothing(tmp_path, servers, journal_url):
    order = [str(tmp_path), str(KILLS), SEED, str(servers), journal_url, ENDINGS]
    done = subprocess.run(
        [sys.executable, "-m", "plugins.serve.serve_kills", *order],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    message = json.loads(done.stdout.splitlines()[-1])
    print(message)
    assert message["faults"] == []
    assert message["kills"] == KILLS
    assert message["resumed"]
    assert message["streams_cut"]
