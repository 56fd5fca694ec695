"""Grouping of actions by resource: ``close_ticket`` and ``list_tickets`` share one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from delf.protocols.prefilter import CatalogEntry
from delf.tools.ranking import plain_name, singular, stem, words_of

_READ_VERBS: Final = frozenset(
    {"list", "get", "read", "retrieve", "find", "search", "query", "count", "filter", "fetch"}
    | {"show", "view", "lookup", "index", "describe", "browse", "select"}
)
_VERBS: Final = _READ_VERBS | frozenset(
    {"create", "add", "new", "post", "put", "patch", "update", "partial", "set", "edit", "change"}
    | {"replace", "write", "save", "upsert", "insert", "append", "delete", "remove", "destroy"}
    | {"clear", "cancel", "close", "open", "send", "start", "stop", "run", "bulk", "batch", "move"}
    | {"copy", "make", "do", "enable", "disable", "assign", "unassign", "upload", "download"}
)
_CHANGE_VERBS: Final = {
    "create": frozenset({"create", "add", "new", "post", "insert", "make", "save"}),
    "update": frozenset({"update", "partial", "patch", "put", "edit", "change", "set", "replace"}),
    "delete": frozenset({"delete", "remove", "destroy"}),
}
# Words that are verbs only at the start of a step, mapped to the kind of change.
_FIRST_VERBS: Final = {
    **dict.fromkeys(("open", "file", "write", "log", "register", "book", "start"), "create"),
    **dict.fromkeys(("erase", "drop", "clear", "discard"), "delete"),
}
_READING_WORDS: Final = _READ_VERBS | frozenset(
    {"which", "what", "who", "whose", "when", "where", "why", "how", "is", "are", "does", "do"}
    | {"download", "export", "summarise", "summarize", "report", "tell", "compare", "check"}
)
_IGNORED_WORDS: Final = frozenset(
    {"a", "all", "an", "and", "as", "at", "by", "for", "from", "id", "ids", "in", "my", "name"}
    | {"of", "on", "one", "or", "the", "to", "with", "many", "details", "api"}
)
_MAX_READERS_PER_GROUP: Final = 3
_SHARED_FRACTION: Final = 0.5
_MIN_NAMES_FOR_SHARED: Final = 12
_MAX_MENTIONED_READERS: Final = 4


def has_read_verb(name: str) -> bool:
    """Return True if an action's name has a read verb and no other verb.

    Args:
        name: The action's name, such as ``tickets.search`` or ``read_flow_runs``.
    """
    words = set(_words(name.rpartition(".")[2]))
    return bool(words & _READ_VERBS) and not has_change_verb(name)


def has_change_verb(name: str) -> bool:
    """Return True if an action's name has a verb of change, such as ``create`` or ``delete``.

    Args:
        name: The action's name, such as ``tickets.close``.
    """
    words = set(_words(name.rpartition(".")[2]))
    # In names, ``run`` is often a noun, as in ``get_flow_run``.
    change_verbs = _VERBS - _READ_VERBS - {"run"}
    return bool(words & change_verbs)


def resource_of(name: str, shared: Container[str] = ()) -> str:
    """Return the noun by which actions are grouped: the first noun in an action's name.

    If the name has no noun, return the name of the connection.

    Args:
        name: ``connection.method``, or the bare name of a function.
        shared: Words in most actions' names, from :func:`shared_words`. Such a word is returned
            only if the name has no other noun.
    """
    connection, _, method = name.rpartition(".")
    nouns = nouns_of(name)
    for noun in nouns:
        if noun not in shared:
            return noun
    if nouns:
        return nouns[0]
    return connection or method


def shared_words(names: Iterable[str]) -> frozenset[str]:
    """Return the words that occur in most names, and therefore name no particular resource.

    In the API of a cluster, these may be words such as ``core``, ``v1`` and ``namespaced``.

    Args:
        names: The names of actions, such as ``tickets.close``. For a small number of names, no word
            is returned.
    """
    methods = [name.rpartition(".")[2] for name in names]
    if len(methods) < _MIN_NAMES_FOR_SHARED:
        return frozenset()
    uses = Counter[str]()
    for method in methods:
        uses.update(set(_words(method)) - _VERBS)
    max_uses = _SHARED_FRACTION * len(methods)
    return frozenset(word for word, count in uses.items() if count > max_uses)


def nouns_of(name: str) -> list[str]:
    """Return the singular nouns in an action's name: ``["flow", "run"]`` for ``list_flow_runs``.

    Args:
        name: ``connection.method``, or the bare name of a function.
    """
    method = name.rpartition(".")[2]
    other_words = (_VERBS - {"run"}) | _IGNORED_WORDS  # in "list_flow_runs", "run" is a noun
    return [singular(word) for word in _words(method) if word not in other_words]


class Change(NamedTuple):
    """A change that an action's name expresses.

    Args:
        kind: ``create``, ``update`` or ``delete``.
        nouns: The stems of the nouns that name the changed resource, such as ``file`` for
            ``delete_files``.
    """

    kind: str
    nouns: frozenset[str]


@functools.lru_cache(20_000)
def change_of(name: str, shared: frozenset[str] = frozenset()) -> Change | None:
    """Return the change that an action's name expresses: create, update or delete.

    Args:
        name: The action's name, such as ``update_task`` or ``tickets_partial_update``.
        shared: Words in most actions' names, which name no resource, from :func:`shared_words`.

    Returns:
        The change; None if the name has no noun or no verb, or if not all of its verbs express the
        same change.
    """
    method = name.rpartition(".")[2]
    known_verbs = _VERBS - {"run"}  # in "update_flow_run", "run" is a noun
    verbs = known_verbs.intersection(_words(method))
    nouns = frozenset(stem(noun) for noun in nouns_of(name) if noun not in shared)
    if not verbs or not nouns:
        return None
    for kind, kind_verbs in _CHANGE_VERBS.items():
        if verbs <= kind_verbs:
            return Change(kind, nouns)
    return None


def kinds_of_change(step: str) -> frozenset[str]:
    """Return the kinds of change that a step requests; empty if the step only reads.

    The kinds are *create* and *delete* if the step has such a verb at any place, as in "Set up and
    create a ticket". The kind is *update* for a step without such a verb, such as "Mark the
    ticket". A step with such a verb and the word *to* or *from* has the kind *update*, too.

    Args:
        step: Plain words.
    """
    words = step.lower().split()
    if not words or words[0].strip(",.:;") in _READING_WORDS:
        return frozenset()
    # Some words, such as "book", are verbs only at the start of a step.
    kind_of_first_word = _FIRST_VERBS.get(words[0])
    kinds: set[str] = set()
    for kind in ("create", "delete"):
        has_verb = not _CHANGE_VERBS[kind].isdisjoint(words)
        if has_verb or kind == kind_of_first_word:
            kinds.add(kind)
    # "Add the label new to the ticket" may create a label, or update a ticket.
    if not kinds or "to" in words or "from" in words:
        kinds.add("update")
    return frozenset(kinds)


def add_readers(names: Iterable[str], catalog: Sequence[CatalogEntry]) -> Iterator[str]:
    """Yield names of actions, each followed by its resource's read actions, without repeats.

    A script that closes a ticket has to find the ticket first: ``close_ticket`` is followed by
    ``get_ticket`` and ``list_tickets``.

    Args:
        names: The chosen actions, best first.
        catalog: All actions.
    """
    groups_by_stem = _read_actions_by_rarest_stem(catalog)
    yielded_names: set[str] = set()
    for name in names:
        stems = _identifying_stems(name)
        readers: list[str] = []
        for group in _groups_of_resource(stems, groups_by_stem):
            readers += group.names[:_MAX_READERS_PER_GROUP]
        for item in (name, *readers):
            if item not in yielded_names:
                yielded_names.add(item)
                yield item


def readers_mentioned(task: str, catalog: Sequence[CatalogEntry]) -> list[str]:
    """Return the name of a read action for each resource that a task names.

    A task needs these actions to find a record first, such as a customer by mail address. Their
    order is that of the resources in the task.

    Args:
        task: The user's task, in plain words.
        catalog: All actions.
    """
    first_positions: dict[str, int] = {}
    for position, word in enumerate(words_of(task)):
        first_positions.setdefault(stem(word), position)
    # Words in most names of actions, such as "v1", do not tell the resources apart.
    words_in_most_names = frozenset(map(stem, shared_words(entry.name for entry in catalog)))
    positions_and_names: list[tuple[int, str]] = []
    for read_actions in _read_actions_by_resource(catalog):
        nouns = _without_connection(read_actions.stems) - words_in_most_names
        task_has_all_nouns = nouns <= first_positions.keys()
        if nouns and task_has_all_nouns:
            # The position of ``order_item`` in the task is the position of the later noun.
            position = max(first_positions[noun] for noun in nouns)
            shortest_name = read_actions.names[0]  # the names are sorted by length
            positions_and_names.append((position, shortest_name))
    positions_and_names.sort()
    return [name for _, name in positions_and_names[:_MAX_MENTIONED_READERS]]


class _ReadActions(NamedTuple):
    """The read actions of one resource, such as ``get_invoice`` and ``list_invoices``.

    Args:
        stems: The :func:`_identifying_stems` of each of these actions, such as ``invoic``.
        names: The names of the actions, shortest first.
    """

    stems: frozenset[str]
    names: list[str]


def _groups_of_resource(
    stems: frozenset[str], groups_by_stem: Mapping[str, Sequence[_ReadActions]]
) -> list[_ReadActions]:
    """Return the groups of read actions whose stems are all among the stems of an action.

    The groups with the most stems come first.

    Args:
        stems: The :func:`_identifying_stems` of the action.
        groups_by_stem: All groups, as from :func:`_read_actions_by_rarest_stem`.
    """
    matching: list[_ReadActions] = []
    for each in stems:
        matching += [group for group in groups_by_stem.get(each, ()) if group.stems <= stems]

    def has_more_exact_match(group: _ReadActions) -> bool:
        return any(group.stems < other.stems for other in matching)

    # An action about `flow run` matches the resources `flow run` and `flow`: keep `flow run`.
    exact = [group for group in matching if not has_more_exact_match(group)]
    return sorted(exact, key=lambda group: (-len(group.stems), group.names))


def _read_actions_by_rarest_stem(
    catalog: Sequence[CatalogEntry],
) -> Mapping[str, Sequence[_ReadActions]]:
    """Return the groups of :func:`_read_actions_by_resource`, each under the rarest of its stems.

    To find the groups that match an action, the caller looks up each stem of the action. Each group
    is in the mapping only once, so the caller finds the group at most once. With the rarest stem,
    the caller finds few groups that do not match.
    """
    groups = _read_actions_by_resource(catalog)
    counts = Counter(chain.from_iterable(group.stems for group in groups))
    groups_by_stem: dict[str, list[_ReadActions]] = {}
    for group in groups:
        if group.stems:
            rarest = min(group.stems, key=lambda each: (counts[each], each))
            groups_by_stem.setdefault(rarest, []).append(group)
    return groups_by_stem


def _read_actions_by_resource(catalog: Sequence[CatalogEntry]) -> list[_ReadActions]:
    """Group the read actions that have the same :func:`_identifying_stems`."""
    groups: dict[frozenset[str], list[str]] = {}
    for entry in sorted(catalog, key=lambda entry: len(entry.name)):
        reads = entry.reads or has_read_verb(entry.name)
        if reads and not is_count(entry.name):
            groups.setdefault(_identifying_stems(entry.name), []).append(entry.name)
    return [_ReadActions(stems, names) for stems, names in groups.items()]


def is_count(name: str) -> bool:
    """Return True if an action only counts records, according to its name.

    Args:
        name: ``connection.method``.
    """
    return "count" in _words(name.rpartition(".")[2])


def is_about_resource(parameter: str, name: str) -> bool:
    """Return True if a parameter is named like the resource that the action is about.

    For ``read_flow_runs``, such a parameter is ``flow_runs``.

    Args:
        parameter: The parameter's name.
        name: The action's name.
    """
    return set(map(stem, _words(parameter))) == set(map(stem, nouns_of(name)))


def _without_connection(stems: frozenset[str]) -> frozenset[str]:
    """Remove the connection's name, which :func:`_identifying_stems` marks with a dot."""
    return frozenset(each for each in stems if not each.endswith("."))


@functools.lru_cache(20_000)
def _identifying_stems(name: str) -> frozenset[str]:
    """Return the stems of the words in an action's name, and the name of the action's connection.

    ``tickets.close_ticket`` gives ``close``, ``ticket`` and ``tickets.``. The connection's name
    ends with a dot, so that it differs from every stem. Read verbs are left out. So the stems of
    ``tickets.get_ticket`` are among those of ``tickets.close_ticket``: both actions have the same
    resource.
    """
    connection, _, method = name.rpartition(".")
    words = set(_words(method)) - _READ_VERBS - _IGNORED_WORDS
    stems = set(map(stem, words))
    if connection:
        stems.add(f"{connection}.")
    return frozenset(stems)


@functools.lru_cache(20_000)
def _words(name: str) -> tuple[str, ...]:
    return tuple(plain_name(name).lower().split())
