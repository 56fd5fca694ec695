"""Plugins are installed so that `uv tool upgrade`, which makes the environment anew, keeps them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from delf.errors import DelfError
from delf_console import installer, uv_tool

RECEIPT = """
[tool]
requirements = [
    { name = "delf-core" },
    { name = "delf-core", extras = ["standard"] },
    { name = "delf-plugin-audit", path = "/dist/delf_plugin_audit-0.1.0-py3-none-any.whl" },
    { name = "delf-plugin-own", editable = "/src/own" },
    { name = "delf-plugin-made-up", specifier = ">=1" },
]
python = "/usr/bin/python3.12"

[tool.options]
find-links = ["file:///dist", "file:///dist"]
"""
KEPT = [
    *("delf-core", "--with", "delf-core[standard]"),
    *("--with", "delf-plugin-audit @ file:///dist/delf_plugin_audit-0.1.0-py3-none-any.whl"),
    *("--with-editable", "/src/own", "--with", "delf-plugin-made-up>=1"),
]
OPTIONS = ["--python=/usr/bin/python3.12", "--find-links=file:///dist"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An environment of `uv tool`, with uv on the search path."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("shutil.which", "/bin/{}".format)
    (tmp_path / "uv-receipt.toml").write_text(RECEIPT)
    return tmp_path


def test_install_keeps_the_packages_of_the_receipt(environment: Any):
    command = installer.install(["delf-plugin-sql"])
    assert command[:4] == ["/bin/uv", "tool", "install", "--quiet"]
    assert command[4 : 4 + len(KEPT)] == KEPT
    assert command[4 + len(KEPT) :] == [
        *("--with", "delf-plugin-sql", *OPTIONS),
        *("--constraint", "constraints.txt", "--no-sources"),
    ]


def test_install_replaces_the_version_of_an_installed_package(environment: Any):
    command = installer.install(["--find-links", "/dist", "delf-plugin-made-up==2"])
    assert "delf-plugin-made-up==2" in command
    assert "delf-plugin-made-up>=1" not in command
    assert [word for word in command if "find-links" in word] == ["--find-links"]


def test_uninstall_removes_a_package_from_the_receipt(environment: Any):
    command = installer.uninstall(["delf-plugin-audit"])
    assert command[:3] == ["/bin/uv", "tool", "install"]
    assert not [word for word in command if "audit" in word]
    assert "delf-core[standard]" in command


def test_package_outside_the_receipt_is_uninstalled_directly(environment: Any):
    assert installer.uninstall(["delf-plugin-llm"])[:3] == ["/bin/uv", "pip", "uninstall"]


@pytest.mark.parametrize("requirement", ["git = 'x'", "name = 'other'"])
def test_unreadable_receipt_is_an_error(environment: Any, requirement: str):
    receipt = f"[tool]\nrequirements = [{{ {requirement} }}]"
    (environment / "uv-receipt.toml").write_text(receipt)
    with pytest.raises(DelfError, match="cannot be read as a receipt"):
        installer.install(["delf-plugin-sql"])


def test_other_environments_use_no_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert uv_tool.receipt() is None
