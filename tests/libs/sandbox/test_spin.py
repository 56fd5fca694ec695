"""Tests of spinning for an answer, or sleeping until it arrives."""

import pytest

from delf_sandbox.guest.spin import Spin


@pytest.fixture
def looking():
    return Spin(has_several_processors=True)


def waits_that_sleep(looking):
    count = 0
    while not looking.begin_wait():
        count += 1
    return count


def test_spin_sleeps_on_the_first_wait(looking):
    assert [looking.begin_wait(), looking.begin_wait()] == [False, True]


def test_spin_resumes_after_a_successful_wait(looking):
    looking.record_failure()
    looking.record_success()
    assert looking.begin_wait()


def test_spin_sleeps_longer_after_unsuccessful_waits(looking):
    looking.record_success()
    slept = []
    for _ in range(9):
        looking.record_failure()
        slept.append(waits_that_sleep(looking))
    assert slept == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_spin_is_off_on_one_processor():
    looking = Spin(has_several_processors=False)
    looking.record_success()
    assert not looking.begin_wait()
