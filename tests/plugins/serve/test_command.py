"""``delf serve`` as a program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.program import DELF


def test_server_that_cannot_start_prints_only_the_error(tmp_path: Path) -> None:
    """The address is not printed."""
    (tmp_path / "journal.db").write_bytes(b"no database" * 1000)
    (tmp_path / "delf.toml").write_text(
        '[agent]\nllm = "gpt-4o-mini"\nproviders = { openai = "test-key" }\n'
        f'[plugins.journal-sql]\nurl = "{tmp_path / "journal.db"}"\n'
    )
    command = [DELF, "serve", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "is damaged, or no SQLite file" in done.stderr
