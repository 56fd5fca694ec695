"""Tests of which failures of a task are retried."""

from __future__ import annotations

from typing import Any

import pytest

from delf.errors import (
    ApprovalRejectedError,
    BudgetExceededError,
    CodeGenerationError,
    ConfigurationError,
    ConnectionUnavailableError,
    DelfError,
    LLMExecutionError,
    ReplayMismatch,
    SandboxExecutionError,
    SandboxUnavailableError,
    TaskStoppedError,
    TaskTimeoutError,
    ToolExecutionError,
    UnrecordedCallError,
)
from delf.events import TaskPostponed, TaskQueued, TaskStarted
from delf_engine.journal.retrying import seconds_until_retry, without_recorded_failures

BEGUN = (
    TaskQueued(task_id="t", seq=1, at=1.0, task="Do it.", queue="q"),
    TaskStarted(task_id="t", seq=2, at=2.0, task="Do it."),
)


def postponed(tries: int) -> TaskPostponed:
    message: Any = {"error": "away", "code": "ERR", "tries": tries, "not_before": 9.0}
    return TaskPostponed(task_id="t", seq=2 + tries, at=3.0, **message)


@pytest.mark.parametrize(
    "error",
    [
        LLMExecutionError("no answer"),
        LLMExecutionError("busy", status=429),
        LLMExecutionError("broken", status=503),
        ConnectionUnavailableError("the shop does not answer"),
        SandboxUnavailableError("docker does not answer"),
    ],
)
def test_outage_reschedules_the_task(error: DelfError) -> None:
    assert seconds_until_retry(error, BEGUN, 1, 5.0) == 5.0
    behind = ToolExecutionError("a tool failed")
    behind.__cause__ = error
    assert seconds_until_retry(behind, BEGUN, 1, 5.0) == 5.0
    assert seconds_until_retry(error, BEGUN, 0, 5.0) is None


@pytest.mark.parametrize(
    "error",
    [
        ApprovalRejectedError("a person said no"),
        BudgetExceededError("nothing is left"),
        TaskStoppedError("cancelled"),
        TaskTimeoutError("too long"),
        ConfigurationError("no such model"),
        CodeGenerationError("no script"),
        SandboxExecutionError("the script failed"),
        ReplayMismatch("another script"),
        UnrecordedCallError("not in the journal"),
        LLMExecutionError("no such key", status=401),
        LLMExecutionError("too much", status=400),
    ],
)
def test_permanent_failure_is_not_rescheduled(error: DelfError) -> None:
    assert seconds_until_retry(error, BEGUN, 5, 5.0) is None


def test_retry_delay_doubles_up_to_an_hour() -> None:
    away = ConnectionUnavailableError("away")
    waits = [
        seconds_until_retry(away, (*BEGUN, *map(postponed, range(1, attempts + 1))), 9, 100.0)
        for attempts in range(10)
    ]
    assert waits == [100, 200, 400, 800, 1600, 3200, 3600, 3600, 3600, None]


def test_retry_delay_has_no_limit_of_attempts() -> None:
    failed = (*BEGUN, *map(postponed, range(1, 1101)))
    assert seconds_until_retry(ConnectionUnavailableError("away"), failed, 2000, 0.0) == 0.0
    assert seconds_until_retry(ConnectionUnavailableError("away"), failed, 2000, 1.0) == 3600.0


def test_retried_task_keeps_its_record() -> None:
    assert without_recorded_failures((*BEGUN, postponed(1))) == list(BEGUN)
    assert without_recorded_failures(BEGUN) == list(BEGUN)
