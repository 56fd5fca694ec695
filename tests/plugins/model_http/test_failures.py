"""Failures, as every plugin of models has them."""

from support.model_failures import ModelFailures


class TestFailures(ModelFailures):
    pass
