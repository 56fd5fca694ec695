"""Parts of delf that are packages of their own."""

import pytest

from delf.errors import OptionalDependencyError
from delf.optional import optional


def test_what_is_installed_is_given():
    assert optional("delf_project", "what reads delf.toml").Prices


def test_what_is_missing_is_named_with_its_package():
    with pytest.raises(OptionalDependencyError, match="the loom is not installed") as caught:
        optional("delf_no_such_thing", "the loom")
    assert caught.value.package == "delf-no-such-thing"


def test_what_a_package_lacks_itself_is_no_missing_package(tmp_path, monkeypatch):
    (tmp_path / "delf_half.py").write_text("import delf_other_half\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="delf_other_half"):
        optional("delf_half", "the other half")
