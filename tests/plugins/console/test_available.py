"""``delf plugins available`` lists the plugins of others below delf's own."""

import json

import pytest

from delf.packages.official import all_packages
from delf_console import available
from support.cli_fixtures import *  # noqa: F403 - here, run

TICKETS = {"summary": "tickets of the desk", "kind": "connection", "home": "https://example.org"}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    path = tmp_path / "directory.json"
    path.write_text(json.dumps({"delf-plugin-tickets": TICKETS}))
    monkeypatch.setattr(available, "DIRECTORY", path)


def test_third_party_plugin_is_listed_by_full_name(directory, here, run):
    rows = json.loads(run("plugins", "available", "--json").stdout)
    assert rows[-1] == {
        "name": "delf-plugin-tickets",
        "purpose": "By others",
        "summary": "tickets of the desk",
        "installed": False,
    }
    text = run("plugins", "available").stdout
    assert text.index("By others") > text.index("sql")
    assert "delf-plugin-tickets" in text


def test_every_own_plugin_is_listed_under_a_purpose(here, run):
    listed = [f"delf-plugin-{name}" for names in available.purposes().values() for name in names]
    assert sorted(listed) == sorted(p for p in all_packages() if p.startswith("delf-plugin-"))
    shown = run("plugins", "available").stdout
    assert "✓ gmail " in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_directory_entries_of_plugins_are_complete():
    for name, plugin in available.plugins_of_others().items():
        assert name.startswith("delf-plugin-")
        assert set(plugin) == {"summary", "kind", "home"}
        assert plugin["home"].startswith("https://")
