"""Tests of the pauses before a call is retried."""

from delf_model_providers.failures import Failure
from delf_model_providers.retry import RetryPolicy


def test_back_off_doubles_with_jitter_up_to_a_limit():
    bad = Failure(message="", provider="p", retry="yes")
    policy = RetryPolicy(retries=10, jitter=lambda: 0.5)
    assert [policy.delay(bad, n) for n in (1, 2, 3, 10)] == [0.5, 1.0, 2.0, 8.0]
    assert RetryPolicy(jitter=lambda: 0.0).delay(bad, 1) == 0.375
    assert RetryPolicy(jitter=lambda: 0.999).delay(bad, 1) < 0.626
    assert policy.delay(bad, 11) is None
    assert policy.delay(Failure(message="", provider="p"), 1) is None
