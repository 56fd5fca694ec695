"""Search and statistics over all tasks of the journal."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Final

from delf.errors import ConfigurationError, DelfError, JournalUnavailableError
from delf.network.outages import Outage
from delf.protocols.journal import filterable_fields
from delf.protocols.search import Figures, TaskFilter
from delf.protocols.shared_journal import SharedJournal
from delf_engine.elsewhere import search_tasks
from delf_engine.views.compare import PARTS, prepare_comparison
from delf_serve import schemas as s
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError
from delf_serve.tasks.tasks import Tasks

_log = logging.getLogger(__name__)

INDEX_PAUSE_SECONDS: Final = 1.0
# The maximum number of pairs of equal lines in two texts that are aligned.
_MAX_EQUAL_PAIRS: Final = 10_000_000
# The time limit of one update of the index.
_MAX_INDEXING_SECONDS: Final = 1.0


async def keep_indexing(journal: SharedJournal) -> None:
    """Update the journal's search index periodically; return if the journal has no index."""
    outage = Outage(_log, "new events are not found by search", journal.place)
    while True:
        unindexed_count = 0
        with outage.track(DelfError):
            try:
                unindexed_count = await journal.index(_MAX_INDEXING_SECONDS)
            except JournalUnavailableError:  # a subclass of ConfigurationError
                raise
            except ConfigurationError:
                return  # the journal has no index
        await asyncio.sleep(0 if unindexed_count else INDEX_PAUSE_SECONDS)


async def search(tasks: Tasks, query: s.SearchQuery, caller: Caller) -> s.FoundList:
    """Return the newest tasks that match a filter and that the caller may see.

    Raises:
        ProblemError: If the journal has no search.
        UnknownTaskError: If the task after which the results begin is unknown.
    """
    await _update_index(tasks)
    before: str | None = None
    if query.before is not None:  # the id of a task that the caller may see, or a prefix
        before = (await tasks.views.record(query.before, caller)).task_id
    pending_requests = await tasks.pending_requests.by_task()
    matches = await search_tasks(
        tasks.journal, _filter(query, caller), query.limit, before, tasks.pending_requests.by_task
    )
    views = [
        s.FoundTask.of(match, task=tasks.views.view_of(match.task, pending_requests, caller))
        for match in matches.tasks
    ]
    unindexed_event_count = matches.behind
    return s.FoundList(tasks=views, more=matches.more, behind=unindexed_event_count)


async def figures(tasks: Tasks, query: s.FiguresQuery, caller: Caller) -> Sequence[Figures]:
    """Return statistics by group for the tasks that match a filter and that the caller may see.

    Raises:
        ProblemError: If the journal has no index of tasks.
        DelfError: If the time zone is unknown.
    """
    await _update_index(tasks)
    return await tasks.journal.figures(query.by, _filter(query, caller), query.zone)


def figure_list(found: Sequence[Figures], *, more: bool) -> s.FigureList:
    """Convert statistics to the API's format."""
    return s.FigureList(figures=[s.Figures(**asdict(figures)) for figures in found], more=more)


async def compare(tasks: Tasks, one: str, other: str, caller: Caller) -> s.Comparison:
    """Compare the figures, scripts, calls and answers of two tasks.

    Raises:
        UnknownTaskError: If the caller may not see one of the tasks.
    """
    records = [await tasks.views.record(text, caller) for text in (one, other)]
    events = [await tasks.journal.read(record.task_id) for record in records]

    def make_comparison() -> s.Comparison:
        """Return the figures of both tasks, and their scripts, calls and answers line by line."""
        a, b = (
            prepare_comparison(task, task_events)
            for task, task_events in zip(records, events, strict=True)
        )
        return s.Comparison(
            a=s.ComparedTask(**a.figures),
            b=s.ComparedTask(**b.figures),
            **{part: _align_lines(a.lines[part], b.lines[part]) for part in PARTS},
        )

    return await asyncio.to_thread(make_comparison)


def _align_lines(left: Sequence[str], right: Sequence[str]) -> list[s.ComparedLine]:
    """Align the lines of two texts for a side-by-side diff.

    Texts with many repeated lines stay unaligned, because the alignment would take minutes. Line 1
    is then beside line 1, line 2 beside line 2, and so on.
    """
    counts = Counter(right)
    equal_pair_count = sum(number * counts[line] for line, number in Counter(left).items())
    if equal_pair_count > _MAX_EQUAL_PAIRS:
        return [s.ComparedLine(left=a, right=b, same=a == b) for a, b in zip_longest(left, right)]
    rows: list[s.ComparedLine] = []
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        pairs = zip_longest(left[left_start:left_end], right[right_start:right_end])
        rows += [s.ComparedLine(left=a, right=b, same=tag == "equal") for a, b in pairs]
    return rows


async def _update_index(tasks: Tasks) -> None:
    """Add the newest events to the search index of the journal.

    Raises:
        ProblemError: If the journal has no search.
    """
    # Shorter than the updates in the background, because a client waits for this update.
    max_seconds = _MAX_INDEXING_SECONDS / 4
    try:
        await tasks.journal.index(max_seconds)
    except JournalUnavailableError:  # a subclass of ConfigurationError
        raise
    except ConfigurationError:
        raise ProblemError(
            501, "the journal has no search", "configure a journal with search"
        ) from None


def _filter(query: s.FilterQuery, caller: Caller) -> TaskFilter:
    """Convert query parameters to a filter for the tasks that the caller may see."""
    filter_fields = TaskFilter.__dataclass_fields__
    parameters = query.model_dump()
    conditions = {name: value for name, value in parameters.items() if name in filter_fields}
    # Other parameters are compared with fields of the tasks' records.
    given_fields = {
        name: parameters[name] for name in filterable_fields() if parameters[name] is not None
    }
    return TaskFilter(**conditions, fields=given_fields, users=caller.visible_users)
