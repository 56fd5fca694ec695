"""The fixtures that ``delf plugins install devkit`` gives to pytest.

Loaded at every start of pytest, whether a test uses delf or not: delf itself is imported by
the fixtures only.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from delf_devkit.testing.approvals import ScriptedApprovals
    from delf_devkit.testing.hosts import TestHost
    from delf_devkit.testing.models import ScriptedModel
    from delf_devkit.testing.project import DelfProject

# Failing assertions of contracts show their values, as in the author's own tests.
pytest.register_assert_rewrite("delf_devkit.testing.contracts")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Redact secrets in the failure reports of suites: errors, values and logs."""
    report = yield
    suite = getattr(item, "cls", None)
    if report.failed and getattr(suite, "hides_secrets", False):
        from delf_devkit.testing.contracts.leaks import secrets_of

        secrets = secrets_of(suite, getattr(item, "funcargs", {}))
        text = str(report.longrepr)
        # Keep a report without secrets as it is, because a plain text would lose pytest's colours.
        if (hidden := secrets.hide(text)) != text:
            report.longrepr = hidden
        report.sections = [(name, secrets.hide(content)) for name, content in report.sections]
    return report


@pytest.fixture
def delf_host(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> TestHost:
    """A host with all installed plugins, to which a test adds others.

    Data of the test's agents goes into a folder of the test, not into the user's data.
    """
    from delf_devkit.testing.hosts import TestHost

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    return TestHost.discover(environ={})


@pytest.fixture
def scripted_model(delf_host: TestHost) -> ScriptedModel:
    """A model with scripted answers, for ``Agent(llm="scripted", host=delf_host)``."""
    from delf_devkit.testing.models import ScriptedModel

    model = ScriptedModel()
    delf_host.provide(model.spec, model.factory)
    return model


@pytest.fixture
def scripted_approvals(delf_host: TestHost) -> ScriptedApprovals:
    """An approval channel with queued decisions, for an agent with ``approvals=["scripted"]``."""
    from delf_devkit.testing.approvals import ScriptedApprovals

    channel = ScriptedApprovals()
    delf_host.provide(channel.spec, lambda: channel)
    return channel


@pytest.fixture
def delf_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DelfProject:
    """An empty folder in which ``delf`` can be run as on a command line."""
    from delf_devkit.testing.project import DelfProject

    return DelfProject(tmp_path / "project", monkeypatch)
