import pytest

from support.model_fixtures import http_model, openai_server, pauses

__all__ = ["http_model", "openai_server", "pauses"]

pytest.register_assert_rewrite("support.model_calls", "support.model_failures")


@pytest.fixture
def make_model(http_model):
    return http_model
