"""The package is what it says it is."""

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "console"
    module = "delf_console"
    offers = {
        "command": [
            "config", "doctor", "inspect", "journal", "keys", "plugins available", "plugins check", "plugins install", "plugins uninstall",
            "quickstart", "resume", "run", "runs", "runs diff", "runs figures", "runs fork", "runs search", "runs stop",
        ]
    }  # fmt: skip
