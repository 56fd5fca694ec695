"""Three people work on the real page for some seconds; the page shows nothing wrong.

``DELF_TEST_JOURNEYS=3600`` for an hour; ``journeys.py`` says what they do.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from plugins.serve.journeys import journey

SECONDS = float(os.environ.get("DELF_TEST_JOURNEYS", "6"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 2 * SECONDS)]


def test_page_is_correct_for_three_concurrent_people(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))
    folder = tmp_path / "office"
    folder.mkdir()
    found = asyncio.run(journey(folder, SECONDS, seed=20261127))
    print(found)
    assert found["faults"] == []
    assert found["steps"] >= 2
    assert found["checks"] >= 20
