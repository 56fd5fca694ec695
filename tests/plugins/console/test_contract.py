"""The package is what it says it is. ``official.json`` has the names of its commands."""

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "console"
    module = "delf_console"
