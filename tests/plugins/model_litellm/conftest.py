import pytest

from support.model_fixtures import LITELLM_WARNING, litellm_model, openai_server, pauses

__all__ = ["litellm_model", "openai_server", "pauses"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", LITELLM_WARNING)
