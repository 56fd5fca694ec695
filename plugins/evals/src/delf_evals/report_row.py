"""The JSON of a report, without the imports that the report itself needs."""

from __future__ import annotations

from typing import Any, TypedDict


class ReportRow(TypedDict):
    """The JSON of a report, with the totals of each variant and the table of the terminal.

    Args:
        dataset: The data set's name.
        at: The start of the run in ISO 8601.
        variants: The results by variant: its settings as ``name``, ``model``, ``passed``,
            ``total``, ``cost_usd``, and ``cases`` with ``name``, ``task``, ``passed``, ``error``,
            ``checks``, ``answer``, ``expected``, ``scripts``, ``calls``, ``unrecorded``,
            ``cost_usd`` and ``duration_ms``.
        judge_cost_usd: The cost of judges; None if a price is unknown.
        since: The start of the earlier run with which this run is compared; None without one.
        changes: The cases with another result than in that run: ``variant``, ``case``, and
            ``passed``, which is true if a larger share of the case's runs passes than before.
        table: The table of the terminal: the head, then its rows.
        summary: The lines above the table.
    """

    dataset: str
    at: str
    variants: list[dict[str, Any]]
    judge_cost_usd: float | None
    since: str | None
    changes: list[dict[str, Any]]
    table: list[list[str]]
    summary: list[str]
