"""The contract of packages."""

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "workers"
