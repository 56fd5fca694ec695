"""An address in the settings is checked when delf reads it, and not at the first request."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from delf.errors import ConnectionConfigurationError
from delf.settings import PluginSettings

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"(^|_)(url|issuer)$")
DATABASES = {("SQLSettings", "url"), ("JournalSettings", "url")}
"""Settings for addresses of databases, which the drivers of the databases check."""


def addresses() -> Iterator[tuple[type[PluginSettings], str]]:
    files = [*ROOT.glob("libs/*/src/**/*settings.py"), *ROOT.glob("plugins/*/src/**/*settings.py")]
    for file in files:
        parts = file.with_suffix("").parts
        module = importlib.import_module(".".join(parts[parts.index("src") + 1 :]))
        for kind in vars(module).values():
            if inspect.isclass(kind) and issubclass(kind, PluginSettings):
                for name in kind.model_fields:
                    is_database = (kind.__name__, name) in DATABASES
                    if ADDRESS.search(name) and not is_database:
                        yield kind, name


def test_every_address_in_the_settings_is_checked() -> None:
    found = dict.fromkeys(addresses())
    assert len(found) >= 12
    for kind, name in found:
        for value in ("http://u:secret@host:99999/x", "http://u:secret@[::1/x", "host:80"):
            with pytest.raises(ConnectionConfigurationError, match=rf"\b{name}\b") as caught:
                kind.for_instance("x", {name: value})
            assert "secret@" not in caught.value.describe(), (kind, name)
