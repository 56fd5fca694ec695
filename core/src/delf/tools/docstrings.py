"""Parsing of docstring sections with headers (``Args:``), underlines or fields (``:param x:``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

_PARAMETERS: Final = frozenset({"args", "arguments", "parameters", "params", "keyword arguments"})
_RETURNS: Final = frozenset({"returns", "return", "yields"})
_OTHERS: Final = frozenset(
    {"raises", "note", "notes", "example", "examples", "see also", "references", "warning"}
    | {"warnings", "attributes", "todo", "usage", "side effects"}
)
_IGNORED_SECTIONS: Final = frozenset({"raises", "references", "see also", "todo"})
_TEXT_AFTER_SECTION: Final = "after"
_HEADER: Final = re.compile(r"(?P<name>[A-Za-z ]+):$")
_ONE_LINE_SECTION: Final = re.compile(r"^(?P<name>Returns?|Yields): +(?=\S)", re.MULTILINE)
_UNDERLINE: Final = re.compile(r"-{3,}$")
_FIELD: Final = re.compile(r":(?P<kind>[a-z]+)(?:\s+(?P<about>[^:]*))?:\s*(?P<text>.*)$")
_ITEM: Final = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY_ITEM: Final = re.compile(r"\*{0,2}(?P<name>\w+)(?:\s*:.*)?$")
_PLAIN_TYPES: Final = frozenset(
    {"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "None"}
)
_TYPE: Final = re.compile(r"[\w.\[\], |]{1,60}")


class Docstring(NamedTuple):
    """A docstring in parts.

    Args:
        summary: The first paragraph, in one line.
        parameters: The descriptions of parameters by name.
        returns: The description of the result.
        notes: The other paragraphs and sections, such as warnings, in one line.
        attributes: The descriptions of a class's attributes by name.
    """

    summary: str
    parameters: dict[str, str]
    returns: str
    notes: str = ""
    attributes: Mapping[str, str] = MappingProxyType({})


def read_docstring(doc: str) -> Docstring:
    """Read the sections of a docstring.

    Args:
        doc: The dedented docstring.
    """
    unnamed_lines: list[str] = []
    note_lines: list[str] = []
    parameters: dict[str, str] = {}
    attributes: dict[str, str] = {}
    returns_lines: list[str] = []
    # The section ``Returns: The total.`` becomes a header and an indented line.
    doc = _ONE_LINE_SECTION.sub(r"\g<name>:\n    ", doc)
    for section, lines in _sections(doc.splitlines()):
        if not section:
            unnamed_lines += lines
        elif section in _PARAMETERS:
            parameters |= _items(lines)
        elif section == "attributes":
            attributes |= _items(lines)
        elif section in _RETURNS:
            returns_lines += lines
        elif section not in _IGNORED_SECTIONS:
            note_lines.append("")
            if section != _TEXT_AFTER_SECTION:
                note_lines.append(f"{section.capitalize()}:")
            note_lines += lines
    returns_text = _returns_text(returns_lines)
    # Sphinx fields, such as ``:param name: text``, have no section of their own.
    for field in _fields(unnamed_lines):
        kind, about = field["kind"], field["about"]
        text = _one_line(field["text"])
        if kind in ("param", "parameter", "arg", "argument") and about:
            parameters[_last_word(about)] = text
        elif kind in ("ivar", "cvar", "var") and about:
            attributes[_last_word(about)] = text
        elif kind in ("return", "returns"):
            returns_text = text
        elif kind not in ("type", "rtype", "raises", "raise"):
            title = f"{kind.capitalize()} {about}".strip()
            note_lines.append(f"{title}: {text}")
    body = "\n".join(_before_fields(unnamed_lines)).strip()
    summary, _, rest = body.partition("\n\n")
    notes = _one_line("\n".join([rest, *note_lines]))
    return Docstring(_one_line(summary), parameters, returns_text, notes, attributes)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _last_word(text: str) -> str:
    """Return the name in ``int count``, as in ``:param int count:``."""
    return text.rsplit(maxsplit=1)[-1]


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each section of a docstring, such as ``args``, with its lines.

    The text before the first section is yielded as ``""``.
    """
    name = ""
    section_lines = list[str]()
    index = 0
    while index < len(lines):
        line = lines[index]
        section, length = _header(lines, index)
        is_unindented_text = line.strip() != "" and not line.startswith((" ", "\t"))
        if section and is_unindented_text:
            yield name, section_lines
            name = section
            section_lines = []
            index += length
            continue
        # An unindented line ends the section, except in the NumPy style.
        if name and is_unindented_text and not _is_numpy(section_lines):
            yield name, section_lines
            name = _TEXT_AFTER_SECTION
            section_lines = []
        section_lines.append(line)
        index += 1
    yield name, section_lines


def _header(lines: list[str], index: int) -> tuple[str, int]:
    """Return the name of the section that starts at a line, and the number of its header lines.

    The name is empty if no section starts there.
    """
    line = lines[index].strip()
    header = _HEADER.fullmatch(line)
    section_names = _PARAMETERS | _RETURNS | _OTHERS
    if header is not None and header["name"].lower() in section_names:
        return header["name"].lower(), 1
    underline = lines[index + 1].strip() if index + 1 < len(lines) else ""
    if _UNDERLINE.fullmatch(underline) and line.lower() in section_names:
        return line.lower(), 2
    return "", 0


def _is_numpy(part: list[str]) -> bool:
    """Return True if a section is in the NumPy style, in which items are not indented."""
    for line in part:
        if line.strip():
            return not line.startswith((" ", "\t"))
    return True


def _items(lines: list[str]) -> dict[str, str]:
    """Return the descriptions of parameters or attributes by name, from a docstring section."""
    items: dict[str, str] = {}
    current = ""
    margin = _margin(lines)
    is_numpy = margin == 0  # other styles indent the items
    pattern = _NUMPY_ITEM if is_numpy else _ITEM
    for line in lines:
        text = line.strip()
        item = pattern.fullmatch(text) if _indent(line) == margin else None
        if item is not None:
            current = item["name"]
            # In the NumPy style, the text beside the name is the type, not the description.
            items[current] = "" if is_numpy else item["text"].strip()
        elif text and current:  # a further line of the description
            items[current] = f"{items[current]} {text}".strip()
    return items


def _returns_text(lines: list[str]) -> str:
    """Return the text of a docstring's section ``Returns``, without the type before the text."""
    if lines and _margin(lines) == 0:  # NumPy's: the type, then its description
        description_lines = [line.strip() for line in lines if line.startswith((" ", "\t"))]
        return _one_line(" ".join(description_lines or lines))
    text = _one_line(" ".join(lines))
    # Other styles: ``type: description``, where the type may be missing.
    kind, colon, description = text.partition(": ")
    is_type = kind in _PLAIN_TYPES or ("[" in kind and _TYPE.fullmatch(kind) is not None)
    if colon and is_type:
        return description
    return text


def _fields(lines: list[str]) -> Iterator[dict[str, str]]:
    """Yield fields such as ``:param name: text`` as dicts with ``kind``, ``about`` and ``text``."""
    current: dict[str, str] | None = None
    for line in lines:
        field_match = _FIELD.match(line.strip())
        if field_match is not None:
            if current is not None:
                yield current
            current = {key: value or "" for key, value in field_match.groupdict().items()}
        elif current is not None and line.strip():
            current["text"] += f" {line.strip()}"
    if current is not None:
        yield current


def _before_fields(lines: list[str]) -> list[str]:
    for number, line in enumerate(lines):
        if _FIELD.match(line.strip()):
            return lines[:number]
    return lines


def _margin(lines: list[str]) -> int:
    return min((_indent(line) for line in lines if line.strip()), default=0)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
