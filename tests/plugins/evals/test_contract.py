"""The contract of packages."""

from typing import Any

from delf.testing import PluginContract


class TestPackage(PluginContract):
    name = "evals"
    offers: Any = {"command": ["evals"]}
    vendors = ("pydantic_evals", "pydantic_ai", "yaml")
