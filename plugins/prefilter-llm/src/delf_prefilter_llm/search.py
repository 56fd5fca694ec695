"""``SearchPrefilter``: the model searches actions by words, and names the ones it needs."""

from __future__ import annotations

import re
from typing import Final

from delf.errors import PrefilterError
from delf.protocols.prefilter import Ask, Catalog, CatalogEntry, Selection
from delf.tools.catalogs import search
from delf_prefilter_llm.names import answer, line, named_in

_ROUNDS: Final = 5
_FOUND: Final = 15
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
    """Rounds of ``SEARCH:`` and ``DONE:``. Implements :class:`delf.protocols.prefilter.Prefilter`.

    Args:
        rounds: The maximum number of questions, after which all found actions are selected.
    """

    def __init__(self, rounds: int = _ROUNDS) -> None:
        self._rounds = rounds

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """Let the model search the catalog; return the actions that the model names as done.

        If the rounds run out, all found actions are returned.

        Raises:
            PrefilterError: If the model fails or finds no action.
        """
        if not catalog:
            return Selection(names=())
        surfaced: dict[str, CatalogEntry] = {}
        story: list[str] = []
        for rounds_left in range(self._rounds, 0, -1):
            question = _QUESTION.format(
                total=len(catalog),
                task=task,
                story="\n".join([*story, ""]),
                left=rounds_left,
                rounds=self._rounds,
            )
            reply = await answer(ask, question)
            commands = _COMMAND.findall(reply)
            rest_text = " ".join(rest for word, rest in commands if word.upper() == "DONE")
            names = named_in(rest_text, catalog)
            if names:
                return Selection(names=names)
            for words in [rest for word, rest in commands if word.upper() == "SEARCH"] or [reply]:
                entries = search(catalog, words, _FOUND)
                surfaced |= {entry.name: entry for entry in entries}
                story += [
                    f"SEARCH: {words.strip()[:200]}",
                    *(map(line, entries) if entries else ["nothing"]),
                ]
        if not surfaced:
            raise PrefilterError(f"the light model found no action in {self._rounds} rounds")
        return Selection(names=tuple(surfaced))
