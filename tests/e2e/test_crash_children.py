"""A parent with ten children is killed, host or sandbox, and ends as one that was not."""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.program import run

KILLS = int(os.environ.get("DELF_TEST_CHILD_KILLS", "4"))
SEED = os.environ.get("DELF_TEST_CHILD_SEED", "20261126")
VICTIMS = os.environ.get("DELF_TEST_CHILD_VICTIMS", "host")  # or host,sandbox
WORKER = Path(__file__).with_name("children_kills.py")


def test_parent_with_ten_children_survives_kills(tmp_path: Path) -> None:
    done = run([WORKER, str(tmp_path), str(KILLS), SEED, VICTIMS], text=True)
    assert done.returncode == 0, done.stderr
    message = json.loads(done.stdout.splitlines()[-1])
    assert message["wrong"] == []
    assert sum(message["kills"].values()) >= KILLS
