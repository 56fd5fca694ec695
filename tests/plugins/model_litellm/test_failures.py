"""Failures, as every plugin of models has them, and litellm's own."""

import pytest

from delf.errors import ModelConfigurationError
from support.model_failures import ModelFailures


class TestFailures(ModelFailures):
    async def test_a_name_that_litellm_does_not_know(self, call, make_model):
        with pytest.raises(ModelConfigurationError, match="'foo/bar'"):
            await call(make_model("foo/bar"))
