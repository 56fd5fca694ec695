"""The package is what it says it is."""

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "run"
    offers = {"command": ["resume", "run", "runs"]}
