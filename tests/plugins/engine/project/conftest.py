import textwrap

import pytest

from delf import load_project


@pytest.fixture
def project(tmp_path):
    """Loads a project from texts; its environment holds only what the test gives."""

    def load(toml=None, *overrides, env=None, dotenv=None, **flags):
        if toml is not None:
            (tmp_path / "delf.toml").write_text(textwrap.dedent(toml))
        if dotenv is not None:
            (tmp_path / ".env").write_text(textwrap.dedent(dotenv))
        return load_project(tmp_path, overrides=overrides, flags=flags, environ=env or {})

    return load
