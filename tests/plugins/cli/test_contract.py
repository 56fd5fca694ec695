"""The package is what it says it is."""

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "cli"
    module = "delf_plugin_cli"
    offers = {
        "command": [
            "config", "doctor", "inspect", "plugins available", "plugins check", "plugins install", "plugins uninstall",
            "resume", "run", "runs", "runs stop",
        ]
    }  # fmt: skip
