"""Text files with YAML front matter between two lines of three dashes.

Each value has its line, for errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from delf.errors import ConfigurationError

_MARK: Final = "---"
# The number of the first line of YAML in a worker's file; line 1 is the mark.
#
# PyYAML counts the lines of YAML from 0.
_FIRST_YAML_LINE: Final = 2
_MAX_BYTES: Final = 256 * 1024
_HINT: Final = "it begins with ---, then name: value lines, then ---, then instructions"


@dataclass(frozen=True, kw_only=True)
class FrontMatter:
    """The parsed contents of a file with YAML front matter.

    Args:
        path: The path of the file.
        table: The values of the front matter, by key.
        text: The text below the front matter.
        text_line: The number of the text's first line, from 1.
        lines: The line number of each value, by the keys that lead to the value.
    """

    path: Path
    table: dict[str, Any]
    text: str
    text_line: int
    lines: dict[tuple[str, ...], int] = field(repr=False)

    def place(self, keys: Sequence[str | int] = ()) -> str:
        """Return the place of a value for error messages: file, line and keys.

        Args:
            keys: The keys that lead to the value. If a key does not exist, the line of the last
                existing key before that key is used.
        """
        names = tuple(str(key) for key in keys)
        existing = names
        while existing and existing not in self.lines:
            existing = existing[:-1]
        line = self.lines.get(existing, 1)
        place = f"{self.path}, line {line}"
        dotted_keys = ".".join(names)
        return f"{place}: {dotted_keys}" if dotted_keys else place

    def place_in_text(self, line: int) -> str:
        """Return the place of a line of the text, such as ``a.worker, line 9``.

        The argument counts lines from 1 at the start of the text, below the front matter.
        """
        return f"{self.path}, line {self.text_line + line - 1}"

    def error(self, problem: str, keys: Sequence[str | int] = (), hint: str = "") -> Exception:
        """Create a ``ConfigurationError`` with the place of a value."""
        return ConfigurationError(f"{self.place(keys)}: {problem}", hint=hint or None)


NONE: Final = FrontMatter(path=Path(), table={}, text="", text_line=1, lines={})
"""The front matter of a worker that a program creates without a file."""


def content(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ConfigurationError: If the file cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"{path} has over {_MAX_BYTES // 1024} KiB")
    return content


def of_bytes(path: Path, content: bytes) -> FrontMatter:
    """Parse the content of a file.

    Raises:
        ConfigurationError: If the content is invalid. The message names file, line and key.
    """
    try:
        return parse(path, content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None


def parse(path: Path, text: str) -> FrontMatter:
    """Parse the text of a file.

    Raises:
        ConfigurationError: If the text is invalid. The message names file, line and key.
    """
    lines = text.splitlines(keepends=True)
    mark_numbers = [number for number, line in enumerate(lines, 1) if line.rstrip() == _MARK]
    if not mark_numbers or mark_numbers[0] != 1:
        raise ConfigurationError(f"{path}, line 1: there is no table", hint=_HINT)
    if len(mark_numbers) == 1:
        raise ConfigurationError(f"{path}, line 1: the table is not closed", hint=_HINT)
    end = mark_numbers[1]  # the line number of the second mark; the first one is in line 1
    head = "".join(lines[1 : end - 1])
    line_numbers: dict[tuple[str, ...], int] = {}
    table = _load(path, head, line_numbers)
    body_lines = lines[end:]
    text_line = end + 1  # after the loop, the number of the first line that is not blank
    for line in body_lines:
        if line.strip():
            break
        text_line += 1
    return FrontMatter(
        path=path,
        table=table,
        text="".join(body_lines).strip(),
        text_line=text_line,
        lines=line_numbers,
    )


def _load(path: Path, front_matter: str, lines: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """Parse the front matter as a YAML mapping, and record the line of each key in ``lines``.

    In messages, the mapping is called a table.
    """
    loader: Any = yaml.SafeLoader(front_matter)
    try:
        node = loader.get_single_node()
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise ConfigurationError(f"{path}, line 2: this is not a table", hint=_HINT)
        _record_lines(path, node, (), lines, set())
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        # Only some errors of PyYAML have a place and a description.
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = _FIRST_YAML_LINE
        if mark is not None:
            line += mark.line
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise ConfigurationError(f"{path}, line {line}: {problem}") from None
    except (ValueError, RecursionError) as error:  # an impossible date, deep nesting
        raise ConfigurationError(f"{path}: the table is not YAML: {error}", hint=_HINT) from None
    finally:
        loader.dispose()


def _record_lines(
    path: Path,
    node: yaml.Node,
    keys: tuple[str, ...],
    lines: dict[tuple[str, ...], int],
    visited: set[int],
) -> None:
    """Record in ``lines`` the line number of each value below a node, by the keys to the value.

    Aliases and duplicate keys are refused.
    """
    line = node.start_mark.line + _FIRST_YAML_LINE
    # Aliases can expand a small file enormously, and give one value two lines.
    if id(node) in visited:
        raise ConfigurationError(f"{path}, line {line}: anchors and aliases are not supported")
    visited.add(id(node))
    if keys not in lines:  # a value of a mapping has the line of its key already
        lines[keys] = line
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _record_lines(path, item, (*keys, str(number)), lines, visited)
    elif isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            key_line = key.start_mark.line + _FIRST_YAML_LINE
            keys_of_item = (*keys, str(key.value))
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigurationError(f"{path}, line {key_line}: a key is not a word")
            # YAML would silently use the last value.
            if keys_of_item in lines:
                name = ".".join(keys_of_item)
                raise ConfigurationError(f"{path}, line {key_line}: {name} is there twice")
            lines[keys_of_item] = key_line
            _record_lines(path, item, keys_of_item, lines, visited)
