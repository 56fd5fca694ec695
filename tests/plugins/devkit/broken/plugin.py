"""Plugins that break one thing each; installed into a folder on ``sys.path``."""

import os
import sys

import pytest

from delf.testing import PluginContract
from delf_devkit.testing.hosts import install_plugin

HOOKS = '''
"""What it brings."""
from delf.hookspecs import hookimpl
from delf.specs import ObserverSpec

@hookimpl
def delf_observers():
    """One."""
    yield ObserverSpec(name="made", summary="Made up.", factory="delf_made.observer:Made")
'''
MODULES = {
    "__init__.py": "",
    "py.typed": "",
    "plugin.py": HOOKS,
    "observer.py": "class Made: ...",
    "vendor.py": "",
}


class Suite(PluginContract):
    name = "made"
    offers = {"observer": ["made"]}
    vendors = ("made_vendor",)
    files = MODULES
    options: dict = {}

    @pytest.fixture(autouse=True)
    def installed(self, tmp_path, monkeypatch):
        before = set(sys.modules)
        install_plugin(tmp_path, "made", **self.options)
        (tmp_path / "made_vendor.py").write_text("")
        for name, text in self.files.items():
            path = tmp_path / "delf_made" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
        monkeypatch.setenv("PYTHONPATH", path)
        yield
        for name in set(sys.modules) - before:
            if name.startswith("delf_made"):
                del sys.modules[name]


class TestGood(Suite):
    pass


DESK = '''
from delf import Connection, action

class Desk(Connection):
    """A desk."""

    @action(effect="read")
    def find(self) -> str:
        """Find."""
        return "found"

class Lamp(Desk):
    """A lamp."""
'''


class TestGoodTwoConnections(Suite):
    offers = {"observer": ["made"], "connection": ["made-desk", "made-lamp"]}
    files = {**MODULES, "desk.py": DESK}

    @pytest.fixture(autouse=True)
    def connections(self, tmp_path, installed):
        (points,) = tmp_path.glob("*.dist-info/entry_points.txt")
        more = (
            "[delf.connections]\nmade-desk = delf_made.desk:Desk\nmade-lamp = delf_made.desk:Lamp\n"
        )
        points.write_text(points.read_text() + more)


class TestNamesAModuleForAConnection(TestGoodTwoConnections):
    breaks = ("test_plugin_is_installed_under_its_name",)
    says = "names its class: module:Class"

    @pytest.fixture(autouse=True)
    def connections(self, tmp_path, installed):
        (points,) = tmp_path.glob("*.dist-info/entry_points.txt")
        points.write_text(points.read_text() + "[delf.connections]\nmade-desk = delf_made.desk\n")


class TestPointsElsewhere(Suite):
    breaks = ("test_plugin_is_installed_under_its_name",)
    options = {"module": "delf_made.observer"}


class TestNotInstalled(Suite):
    breaks = ("test_plugin_declares_its_core_version",)
    distribution = "delf-plugin-nowhere"


class TestUntyped(Suite):
    breaks = ("test_plugin_is_typed_and_described",)
    files = {name: text for name, text in MODULES.items() if name != "py.typed"}


class TestSilent(Suite):
    breaks = ("test_plugin_is_typed_and_described",)
    options = {"summary": " "}


class TestForgotTheMark(Suite):
    breaks = ("test_plugin_loads_without_a_warning", "test_plugin_offers_its_declared_specs")
    files = {**MODULES, "plugin.py": HOOKS.replace("@hookimpl", "")}


class TestTwoLines(Suite):
    breaks = ("test_plugin_is_typed_and_described",)
    files = {**MODULES, "plugin.py": HOOKS.replace("Made up.", "Made\\nup.")}


class TestNoSuchFactory(Suite):
    breaks = ("test_plugin_factories_can_be_imported",)
    files = {**MODULES, "plugin.py": HOOKS.replace("observer:Made", "observer:Mad")}


class TestImportsItsVendor(Suite):
    breaks = ("test_plugin_module_imports_nothing_heavy",)
    files = {**MODULES, "__init__.py": "import made_vendor"}


class TestTakesAPlainToken(Suite):
    breaks = ("test_factories_declare_their_secrets",)
    says = "Made takes 'token' as a plain str"
    files = {
        **MODULES,
        "observer.py": "class Made:\n    def __init__(self, token: str = ''): ...",
    }


class TestSetsUpLoggingAsItIsImported(Suite):
    breaks = ("test_import_changes_no_process_state",)
    says = "importing the plugin's modules changes the process (sets up the root logger"
    files = {
        **MODULES,
        "observer.py": "import logging\nlogging.basicConfig(level=10)\nclass Made: ...",
    }
