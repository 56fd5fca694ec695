"""``FilterPrefilter``: selects actions by one question to the model, which lists all actions."""

from __future__ import annotations

import re
from typing import Final

from delf.errors import PrefilterError
from delf.protocols.prefilter import Ask, Catalog, Selection
from delf_prefilter_llm.names import answer, line, named_in

_NONE: Final = re.compile(r"\W*none\W*", re.IGNORECASE)
_QUESTION: Final = """\
Which of these actions does a script need that does the task below?

Actions:
{actions}

Task:
{task}

Answer with their names as they stand above, tool:ACTION, one a line, and nothing else. Name every
action that may be needed, also those that only look something up first. If none is needed, answer
NONE."""


class FilterPrefilter:
    """Selects actions with one request, which lists all actions, to the configured light model.

    Implements :class:`delf.protocols.prefilter.Prefilter`.
    """

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """Return the actions that the model names.

        Raises:
            PrefilterError: If the model fails, or names no existing action.
        """
        if not catalog:
            return Selection(names=())
        actions = "\n".join(map(line, catalog))
        reply = await answer(ask, _QUESTION.format(actions=actions, task=task))
        names = named_in(reply, catalog)
        says_none_fits = _NONE.fullmatch(reply) is not None
        if not names and not says_none_fits:
            raise PrefilterError("the light model named no existing action")
        return Selection(names=names)
