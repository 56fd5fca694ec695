"""A pytest plugin: templates of the local sandbox start at once; see :mod:`support.nurseries`."""

import pytest

from delf_sandbox_local import forkserver
from support import nurseries


@pytest.fixture(autouse=True)
def quick_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox's own tests start it as users do."""
    monkeypatch.setattr(forkserver, "subprocess", nurseries.quick_templates)
