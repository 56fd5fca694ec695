"""``SearchPrefilter``: the model searches actions by words, and names the ones it needs."""

from __future__ import annotations

import re
from typing import Final

from delf.errors import PrefilterError
from delf.protocols.prefilter import Ask, Catalog, CatalogEntry, Selection
from delf.tools.catalogs import search
from delf_prefilter_llm.names import answer, line, named_in

_ROUNDS: Final = 5
_RESULTS_PER_SEARCH: Final = 15
_COMMAND: Final = re.compile(r"^\W*(SEARCH|DONE)\W*:\s*(.*)", re.IGNORECASE | re.MULTILINE)
_QUESTION: Final = """\
A script will do the task below with actions that you choose. There are {total} actions; you see
those that you search for.

Task:
{task}

{story}
Answer with one of these, and nothing else:
SEARCH: words that describe the actions you look for
DONE: the names of all the actions that are needed, tool:ACTION, separated by commas
{left} of {rounds} answers are left."""


class SearchPrefilter:
    """Lets the agent's light model search for the actions that a task needs, in several rounds.

    In each round, the model answers ``SEARCH:`` with words, or ``DONE:`` with the names of actions.
    Implements :class:`delf.protocols.prefilter.Prefilter`.

    Args:
        rounds: The maximum number of questions to the model.
    """

    def __init__(self, rounds: int = _ROUNDS) -> None:
        self._rounds = rounds

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """Let the model search the catalog; return the actions after ``DONE:``.

        Without ``DONE:`` in any round, all actions in the search results are returned.

        Raises:
            PrefilterError: If the model fails, or the searches have no results.
        """
        if not catalog:
            return Selection(names=())
        results: dict[str, CatalogEntry] = {}
        history: list[str] = []
        for rounds_left in range(self._rounds, 0, -1):
            question = _QUESTION.format(
                total=len(catalog),
                task=task,
                story="".join(f"{entry}\n" for entry in history),
                left=rounds_left,
                rounds=self._rounds,
            )
            reply = await answer(ask, question)
            commands = [(word.upper(), rest) for word, rest in _COMMAND.findall(reply)]
            done_text = " ".join(rest for word, rest in commands if word == "DONE")
            names = named_in(done_text, catalog)
            if names:
                return Selection(names=names)
            searches = [rest for word, rest in commands if word == "SEARCH"]
            # A reply without SEARCH is taken as the words to search for.
            for words in searches or [reply]:
                entries = search(catalog, words, _RESULTS_PER_SEARCH)
                results |= {entry.name: entry for entry in entries}
                history.append(f"SEARCH: {words.strip()[:200]}")
                history += [line(entry) for entry in entries] or ["nothing"]
        if not results:
            raise PrefilterError(f"the light model found no action in {self._rounds} rounds")
        return Selection(names=tuple(results))
