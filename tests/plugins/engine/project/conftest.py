import textwrap

import pytest

from delf import load_project


@pytest.fixture
def project(tmp_path):
    """Return a function that loads a project from texts, with only the test's environment."""

    def load(toml=None, *overrides, env=None, dotenv=None, **flags):
        if toml is not None:
            (tmp_path / "delf.toml").write_text(textwrap.dedent(toml))
        if dotenv is not None:
            (tmp_path / ".env").write_text(textwrap.dedent(dotenv))
        return load_project(tmp_path, overrides=overrides, flags=flags, environ=env or {})

    return load
