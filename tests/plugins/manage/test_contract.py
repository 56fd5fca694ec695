"""The package is what it says it is."""

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "manage"
    offers = {
        "command": [
            "config", "doctor", "inspect", "plugins available", "plugins check", "plugins install", "plugins uninstall",
            "runs stop",
        ]
    }  # fmt: skip
