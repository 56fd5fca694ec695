"""Parsing of docstring sections with headers (``Args:``), underlines or fields (``:param x:``).

Underlined sections and fields are first rewritten as sections with headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

_PARAMETERS: Final = ("args", "arguments", "parameters", "params", "keyword arguments")
_ATTRIBUTES: Final = ("attributes",)
_RETURNS: Final = ("returns", "return", "yields")
_IGNORED: Final = ("raises", "references", "see also", "todo")
_NOTES: Final = ("note", "notes", "example", "examples", "warning", "warnings", "usage")
_NAMES: Final = "|".join(
    (*_PARAMETERS, *_ATTRIBUTES, *_RETURNS, *_IGNORED, *_NOTES, "side effects")
)
_TEXT_AFTER_SECTION: Final = "after"
_HEADER: Final = re.compile(rf"(?P<name>{_NAMES}):\s*", re.IGNORECASE)
_ONE_LINE_SECTION: Final = re.compile(r"^(?P<name>Returns?|Yields): +(?=\S)", re.MULTILINE)
# Matches an underlined section up to the next one.
_UNDERLINED: Final = re.compile(
    rf"^(?P<name>{_NAMES})[ \t]*\n-{{3,}}[ \t]*\n"
    r"(?P<body>.*?)(?=^\S[^\n]*\n-{3,}[ \t]*$|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_UNDERLINED_ITEM: Final = re.compile(r"^(?P<name>\*{0,2}\w+)(?:\s*:.*)?$", re.MULTILINE)
# Matches a field, such as ``:param int count: text``, with its indented further lines. A role, such
# as ``:class:`Order```, is no field.
_FIELD: Final = re.compile(
    r"^:(?P<kind>[a-z]+)(?:[ \t](?P<argument>[^:\n]*))?:(?=\s|$)"
    r"(?P<text>.*(?:\n+[ \t]+\S.*)*)",
    re.MULTILINE,
)
# Maps kinds of fields to the section that a field of the kind becomes.
_SECTION_OF_FIELD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("param", "parameter", "arg", "argument"), "Args"),
    **dict.fromkeys(("ivar", "cvar", "var"), "Attributes"),
    **dict.fromkeys(("return", "returns"), "Returns"),
}
_OMITTED_FIELDS: Final = frozenset({"type", "rtype", "raises", "raise"})
_ITEM: Final = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")
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
    summary = ""
    notes: list[str] = []
    parameters: dict[str, str] = {}
    attributes: dict[str, str] = {}
    returns = ""
    for section, text in _sections(_with_headers(doc)):
        if not section:
            summary, _, rest = text.strip().partition("\n\n")
            notes.append(rest)
        elif section in _PARAMETERS:
            parameters |= _items(text)
        elif section in _ATTRIBUTES:
            attributes |= _items(text)
        elif section in _RETURNS:
            returns = _without_type(_one_line(f"{returns} {text}"))
        elif section == _TEXT_AFTER_SECTION:
            notes.append(text)
        elif section not in _IGNORED:
            notes.append(f"{section.capitalize()}: {text}")
    return Docstring(
        _one_line(summary), parameters, returns, _one_line("\n".join(notes)), attributes
    )


def _with_headers(doc: str) -> str:
    """Rewrite all sections of a docstring as headers with indented lines."""
    doc = _FIELD.sub(_section_of_field, doc)
    doc = _UNDERLINED.sub(_section_of_underlined, doc)
    # The section ``Returns: The total.`` becomes a header and an indented line.
    return _ONE_LINE_SECTION.sub(r"\g<name>:\n    ", doc)


def _section_of_field(field: re.Match[str]) -> str:
    """Rewrite a field such as ``:param int count: text`` as a section with a header."""
    text = _one_line(field["text"])
    argument_words = (field["argument"] or "").split()  # ``int`` and ``count``
    kind = field["kind"]  # ``param``
    if kind in _OMITTED_FIELDS:
        return ""
    section = _SECTION_OF_FIELD.get(kind)
    if section == "Returns":
        return f"\n{section}:\n    {text}"
    if section is not None and argument_words:
        parameter = argument_words[-1]
        return f"\n{section}:\n    {parameter}: {text}"
    # A field without a section becomes a sentence, such as ``Note: text``.
    return f"\n{' '.join([kind.capitalize(), *argument_words])}: {text}"


def _section_of_underlined(section: re.Match[str]) -> str:
    """Rewrite an underlined section, whose items are not indented, as a section with a header."""
    name, body = section["name"].lower(), section["body"]
    if name in _RETURNS:
        # Keep only the description, which is indented below the type; without one, keep the type.
        description_lines = re.findall(r"^[ \t]+.*", body, re.MULTILINE)
        body = "\n".join(description_lines) or body
    elif name in (*_PARAMETERS, *_ATTRIBUTES):  # drop the type from a line such as ``count : int``
        body = _UNDERLINED_ITEM.sub(r"\g<name>:", body)
    return f"{name}:\n{re.sub('^', '    ', body, flags=re.MULTILINE)}\n"


def _sections(doc: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each section of a docstring, such as ``args``, and the section's text.

    Text before the first section has the name ``""``. Text after a section, which is no longer
    indented, has the name ``_TEXT_AFTER_SECTION``.
    """
    name = ""
    lines: list[str] = []
    first_text_line = ""  # the section's first line that is not empty
    for line in doc.splitlines():
        header = _HEADER.fullmatch(line)
        if header is not None:
            yield name, "\n".join(lines)
            name = header["name"].lower()
            lines, first_text_line = [], ""
            continue
        # An unindented line ends a section whose first line is indented.
        is_unindented = line != "" and not _is_indented(line)
        if is_unindented and name != "" and _is_indented(first_text_line):
            yield name, "\n".join(lines)
            name = _TEXT_AFTER_SECTION
            lines, first_text_line = [], ""
        lines.append(line)
        first_text_line = first_text_line or line.rstrip()
    yield name, "\n".join(lines)


def _is_indented(line: str) -> bool:
    return line.startswith((" ", "\t"))


def _items(text: str) -> dict[str, str]:
    """Return the descriptions of parameters or attributes by name, from a docstring section."""
    items: dict[str, str] = {}
    current_name = ""
    lines = [line for line in text.splitlines() if line.strip()]
    margin = min(map(_indent, lines), default=0)
    for line in lines:
        item = _ITEM.fullmatch(line.strip()) if _indent(line) == margin else None
        if item is not None:
            current_name = item["name"]
            items[current_name] = item["text"].strip()
        elif current_name:  # a further line of the description
            items[current_name] = f"{items[current_name]} {line.strip()}".strip()
    return items


def _without_type(returns: str) -> str:
    """Return the text of the section ``Returns`` without the type before the text, if any."""
    kind, colon, description = returns.partition(": ")
    is_generic_type = "[" in kind and _TYPE.fullmatch(kind) is not None  # such as list[int]
    is_type = kind in _PLAIN_TYPES or is_generic_type
    return description if colon and is_type else returns


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
