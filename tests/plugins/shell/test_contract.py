"""The contract of connections, and of packages."""

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_shell import Shell


class TestShell(ConnectionContract):
    calls = (Call("run", command="cat plan.md | cat"),)
    failing_calls = (Call("run", command="nothing-here"), Call("run", command="echo $HOME"))
    calls_to_refuse = (Call("run", command="echo $HOME"),)
    slow_call = Call("run", command="sleep 20")

    @pytest.fixture
    def connection(self, folder) -> Shell:
        return Shell(default={"approval_required": False}, folder=folder)


class TestPackage(PluginContract):
    name = "shell"
