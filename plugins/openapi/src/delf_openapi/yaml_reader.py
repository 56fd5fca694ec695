"""A YAML 1.2 reader with limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, cast

from delf_openapi.failures import SpecError

MAX_DEPTH: Final = 400
# A text that is nested more deeply is not even parsed, to protect the parser's stack. Any other
# text is parsed, and then refused if its data exceed MAX_DEPTH.
_MAX_PARSED_DEPTH: Final = 2 * MAX_DEPTH
_MAX_NODES: Final = 30_000_000
_MAX_MERGED: Final = 500_000
_YAML_1_1: Final = ("timestamp", "bool", "int", "float", "value")
_BOOLEAN: Final = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INTEGER: Final = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT: Final = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


def parse_yaml(data: bytes) -> Any:
    """Parse YAML to plain data.

    Raises:
        SpecError: If the input is invalid, too deeply nested, or too large with its aliases.
    """
    import yaml

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"the specification is not UTF-8: {error.reason}") from None
    _check_nesting(text)
    try:
        tree = yaml.load(text, Loader=_yaml_loader())  # noqa: S506 - made from the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        raise SpecError(f"the specification is neither JSON nor YAML: {problem}{place}") from None
    except (RecursionError, ValueError) as error:
        raise SpecError(f"the specification cannot be read as YAML: {error}") from None
    if _count_values(tree, {}, 0) > _MAX_NODES:
        raise SpecError("the specification's YAML aliases expand to too many values")
    return tree


def _check_nesting(text: str) -> None:
    """Raise if a text is nested so deeply that a C parser would exhaust its stack."""
    # These are fast estimates, which also count the brackets in strings, for example.
    estimated_depth = max(
        _bracket_depth(text),
        _longest(r"(?:- ){100,}", text) // len("- "),  # lists in lists, such as ``- - - x``
        _longest(r"(?m)^ {800,}", text) // 2,  # two spaces are one level
    )
    if estimated_depth > _MAX_PARSED_DEPTH and _is_too_deep_to_parse(text):
        raise SpecError("the specification is nested too deeply")


def _bracket_depth(text: str) -> int:
    """Return how deeply brackets are nested in a text: 2 for ``[[a], b]``."""
    depth = deepest = 0
    for match in re.finditer(r"[\[{]+|[\]}]+", text):
        brackets = match.group()
        if brackets[0] in "[{":
            depth += len(brackets)
            deepest = max(deepest, depth)
        else:
            depth = max(0, depth - len(brackets))
    return deepest


def _longest(pattern: str, text: str) -> int:
    """Return the length of the longest match of a pattern; 0 without a match."""
    return max((len(match.group()) for match in re.finditer(pattern, text)), default=0)


def _is_too_deep_to_parse(text: str) -> bool:
    """Return whether YAML is nested too deeply to build its tree; True also for unreadable YAML.

    The parser's events are counted. They come one after another, so any depth is safe here.
    """
    import yaml

    depth = 0
    try:
        for event in cast("Any", yaml).parse(text, Loader=_yaml_loader()):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_PARSED_DEPTH:
                    return True
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return True  # unreadable in any case
    return False


@cache
def _yaml_loader() -> Any:
    """Return PyYAML's safe loader, in C if available, with the rules of YAML 1.2.

    Dates, ``on``, ``1:30`` and ``=`` stay text, although they have a meaning in YAML 1.1.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        yaml_implicit_resolvers = _without_yaml_1_1(base.yaml_implicit_resolvers)
        merged_key_count = 0

        def flatten_mapping(self, node: Any) -> None:
            """Insert the mappings of the key ``<<``, up to a limit on the number of inserted keys.

            Without the limit, each level of nested mappings could double the size.
            """
            for part in _merged_mappings(node):
                # Flatten the part now, so that its keys can be counted. The base class flattens the
                # part once more, which then changes nothing.
                self.flatten_mapping(part)
                self.merged_key_count += len(part.value)
                if self.merged_key_count > _MAX_MERGED:
                    raise SpecError("the specification's YAML merges too many values")
            base.flatten_mapping(self, node)

    loader: Any = Loader
    loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))
    loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
    loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    loader.add_constructor("tag:yaml.org,2002:int", _integer)
    return loader


def _integer(loader: Any, node: Any) -> int:
    text: str = loader.construct_scalar(node)
    return int(text, {"0o": 8, "0x": 16}.get(text[:2].lower(), 10))


def _without_yaml_1_1(resolvers: Mapping[Any, list[tuple[str, Any]]]) -> dict[Any, list[Any]]:
    """Return PyYAML's resolvers of plain values without the resolvers that follow YAML 1.1.

    A resolver gives an unquoted value its type. The key of the mapping is the first character of
    the values.
    """
    return {
        first: [pair for pair in pairs if pair[0].rpartition(":")[2] not in _YAML_1_1]
        for first, pairs in resolvers.items()
    }


def _merged_mappings(node: Any) -> Iterator[Any]:
    """Yield the mappings that the key ``<<`` of a mapping merges into it: ``a`` for ``<<: *a``."""
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            parts = value.value if value.id == "sequence" else [value]
            yield from (part for part in parts if part.id == "mapping")


def _count_values(node: Any, sizes: dict[int, int], depth: int) -> int:
    """Count the values of a tree; count a shared node each time the tree contains it.

    Args:
        node: The root of the tree.
        sizes: The counts so far, by the identity of the node, so that each node is visited once.
        depth: The depth of the node.

    Raises:
        SpecError: If the tree is too deeply nested or contains itself.
    """
    if not isinstance(node, (dict, list)):
        return 1
    if depth > MAX_DEPTH:
        raise SpecError("the specification is nested too deeply, or contains itself")
    size = sizes.get(id(cast("object", node)))
    if size is None:
        tree = cast("dict[str, Any] | list[Any]", node)
        parts = tree.values() if isinstance(tree, dict) else tree
        size = 1 + sum(_count_values(part, sizes, depth + 1) for part in parts)
        sizes[id(cast("object", node))] = size
    return size
