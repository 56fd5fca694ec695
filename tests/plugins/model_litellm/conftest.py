import pytest

from support.model_fixtures import LITELLM_WARNING, litellm_model, openai_server, pauses

__all__ = ["litellm_model", "openai_server", "pauses"]

pytest.register_assert_rewrite("support.model_calls", "support.model_failures")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", LITELLM_WARNING)


@pytest.fixture
def make_model(litellm_model):
    return litellm_model
