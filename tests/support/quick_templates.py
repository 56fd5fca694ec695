"""A pytest plugin: the local sandbox starts at once, and no process too many.

See :mod:`support.nurseries`. The sandbox's own tests start it as users do, and say how many
processes are kept ready, as do programs that tests start.
"""

from typing import Final

import pytest

from delf_confined import children
from delf_sandbox_local import forkserver
from delf_sandbox_local.backend import LocalBackend
from support import nurseries

NONE_AHEAD: Final = {"pool_size": 0}
"""Most tests run one script, so that what is forked ahead would only be killed."""


@pytest.fixture(autouse=True)
def quick_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox's own tests start it as users do."""
    monkeypatch.setattr(forkserver, "subprocess", nurseries.quick_templates)
    usual = LocalBackend.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(LocalBackend.__init__, "__kwdefaults__", {**usual, **NONE_AHEAD})


@pytest.fixture(autouse=True)
def quick_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of confined children start templates as users do."""
    monkeypatch.setattr(children, "subprocess", nurseries.quick_readers)
