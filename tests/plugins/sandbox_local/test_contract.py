import pytest

from delf.testing import PluginContract, SandboxContract
from delf_sandbox_local.backend import LocalBackend


class TestSandboxLocal(SandboxContract):
    @pytest.fixture
    def quick_templates(self) -> None:
        """Sessions are started in the same way as for users, without the tests' shortcut."""

    @pytest.fixture
    def backend(self):
        return LocalBackend(pool_size=2)


class TestPlugin(PluginContract):
    name = "sandbox-local"
    offers = {"sandbox": ["local"]}
