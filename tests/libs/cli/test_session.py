"""Tests of warnings before a session's task begins."""

from delf import load_project
from delf.plugins.host import PluginHost
from delf_cli.session import plugin_warnings


class Plugin:
    """Stands in for a plugin without any offers."""


def test_options_of_an_uninstalled_plugin_cause_a_warning(tmp_path):
    file = tmp_path / "delf.toml"
    file.write_text("[plugins.dsk]\nx = 1\n[plugins.desk]\nx = 1\n")
    host = PluginHost.discover(no_plugins=True, environ={}, extra=[("desk", Plugin())])
    (warning,) = plugin_warnings(host, load_project(tmp_path, environ={}))
    assert warning == f"{file} [plugins.dsk]: no such plugin is installed; did you mean 'desk'?"
