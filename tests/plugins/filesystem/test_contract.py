"""The contract of connections, and of packages."""

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_filesystem import Filesystem


class TestFilesystem(ConnectionContract):
    check_refuses = False
    untested = ("read_document", "read_bytes", "edit_file", "replace")
    calls = (
        Call("list_files"),
        Call("read_file", path="notes/plan.md"),
        Call("find", text="lamps"),
        Call("write_file", path="out/a.txt", content="a"),
    )
    failing_calls = (
        Call("read_file", path="notes/missing.md"),
        Call("read_file", path="/etc/passwd"),
        Call("write_file", path="notes/plan.md", content="a"),
    )

    @pytest.fixture
    def connection(self, files: Filesystem) -> Filesystem:
        return files


class TestPackage(PluginContract):
    name = "filesystem"
