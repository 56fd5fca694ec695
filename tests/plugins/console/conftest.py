"""The program, run in this process, and distributions that are made up."""

from __future__ import annotations

import pytest

from delf_engine.sandboxes.backends import Probed
from delf_engine.sandboxes.isolation import Measured
from support.cli_fixtures import *  # noqa: F403 - here, run
from support.plugin_site import *  # noqa: F403 - record, site


@pytest.fixture(scope="session")
def measurements() -> dict[tuple[str, bool], Measured]:
    """The measured isolation of this machine's sandboxes, by name and thoroughness."""
    return {}


@pytest.fixture(autouse=True)
def sandboxes_are_measured_once(
    measurements: dict[tuple[str, bool], Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cache the measurements of `delf doctor`, which take some seconds for each sandbox."""
    measure = Probed.measure

    async def measured(probed: Probed, *, thorough: bool = False) -> Measured:
        key = (probed.explain(None), thorough)
        if key not in measurements:
            measurements[key] = await measure(probed, thorough=thorough)
        return measurements[key]

    monkeypatch.setattr(Probed, "measure", measured)
