"""Tables of the documentation that are made from the code.

``make generated`` writes them again.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel

from delf.hookspecs import HOOKS
from delf.members import members
from delf.messages import ModelReply, ModelRequest
from delf.plugins.shapes import optional_protocols, protocol_of
from delf.protocols.approval import ApprovalRequest, Approved
from delf.protocols.facts import RequestFact
from delf.protocols.shared_journal import PartialJournal, SharedJournal
from delf.specs import Provider
from delf_engine.config import LLM_FIELDS, AgentConfig
from support import words
from support.exported import KIT, STUB, kit, stub
from support.official import FILE as OFFICIAL
from support.official import official
from support.options import OPTIONS, options
from support.setting_tables import default_text
from support.workspace import ROOT

PAGE: Final = ROOT / "docs/configuration.md"
DIRECTORY: Final = ROOT / "docs/plugins/directory.md"
OTHERS: Final = ROOT / "plugins/console/src/delf_console/directory.json"
WITH_OPTIONAL: Final = [spec.kind for spec in HOOKS.values() if spec.optional]
"""Kinds whose objects may have more than their protocol."""
_PLACE: Final = re.compile(
    r"(<!-- agent fields[^\n]*-->\n).*?(<!-- end of agent fields -->)", re.DOTALL
)


_OPTIONAL: Final = re.compile(
    r"(<!-- optional members[^\n]*-->\n).*?(<!-- end of optional members -->)", re.DOTALL
)


_FIELDS: Final = re.compile(r"(<!-- fields[^\n]*-->\n).*?(<!-- end of fields -->)", re.DOTALL)


_FACT: Final = re.compile(
    r"(<!-- fields of a fact[^\n]*-->\n).*?(<!-- end of fields of a fact -->)", re.DOTALL
)


_PROVIDER: Final = re.compile(
    r"(<!-- fields of a provider[^\n]*-->\n).*?(<!-- end of fields of a provider -->)", re.DOTALL
)


_MODEL: Final = re.compile(
    r"(<!-- request and reply[^\n]*-->\n).*?(<!-- end of request and reply -->)", re.DOTALL
)


_OTHERS: Final = re.compile(r"(<!-- directory[^\n]*-->\n).*?(<!-- end of directory -->)", re.DOTALL)


def agent_fields() -> str:
    """The fields of ``AgentConfig`` as a table."""
    lines = ["| field | takes | default | meaning |", "|---|---|---|---|"]
    for name, info in AgentConfig.model_fields.items():
        takes = "a model" if name in LLM_FIELDS else _words(info.annotation)
        lines.append(
            f"| `{name}` | {takes} | {default_text(info.get_default(call_default_factory=True))} | {info.description} |"
        )
    return "\n".join(lines) + "\n"


def others_table() -> str:
    """The plugins of others as a table."""
    known = json.loads(OTHERS.read_text(encoding="utf-8"))
    if not known:
        return "There is none yet.\n"
    lines = ["| plugin | kind | what it does |", "|---|---|---|"]
    for name in sorted(known):
        plugin = known[name]
        lines.append(f"| [{name}]({plugin['home']}) | {plugin['kind']} | {plugin['summary']} |")
    return "\n".join(lines) + "\n"


def with_others(text: str) -> str:
    """A page with its table of others' plugins made again."""
    return _OTHERS.sub(lambda match: f"{match[1]}{others_table()}{match[2]}", text)


def hook_page(kind: str) -> Path:
    """The page of the hook that brings a kind."""
    hook = next(name for name, spec in HOOKS.items() if spec.kind == kind)
    return ROOT / f"docs/hooks/{hook}.md"


def optional_members(kind: str) -> str:
    """The typed optional parts of an object of a kind, beside its protocol."""
    lines = ["| protocol | member | is |", "|---|---|---|"]
    declared_by = protocol_of(kind)
    assert declared_by is not None
    known = {*members(declared_by)}
    for protocol in optional_protocols(kind):
        for name in members(protocol):
            if name not in known:
                known.add(name)
                declared = inspect.getattr_static(protocol, name)
                refused = protocol is SharedJournal and hasattr(PartialJournal, name)
                of = PartialJournal if refused else protocol
                member = f"`{_signature(name, declared)}`".replace("|", "\\|")
                lines.append(f"| `{of.__name__}` | {member} | {_purpose(declared)} |")
    return "\n".join(lines) + "\n"


def _purpose(declared: Any) -> str:
    """The first sentence of a member's docstring, and what it raises."""
    doc = inspect.getdoc(declared) or ""
    raised = re.findall(
        r"^    (\w+): (.*(?:\n {8,}.*)*)", doc.partition("Raises:\n")[2], re.MULTILINE
    )
    errors = [f"`{name}` {reason[0].lower()}{reason[1:]}" for name, reason in raised]
    message = " ".join([doc.partition("\n\n")[0], *errors])
    return " ".join(re.sub(r":\w+:`~?([^`]*)`", r"`\1`", message).split()).replace("``", "`")


def with_optional(text: str, kind: str) -> str:
    """A hook's page with its table of optional members made again."""
    return _OPTIONAL.sub(lambda match: f"{match[1]}{optional_members(kind)}{match[2]}", text)


def described_fields(of: type) -> str:
    """The fields of a class with the words of its docstring, as a table."""
    types = {field.name: str(field.type) for field in fields(of)}
    lines = [f"| field of `{of.__name__}` | is | meaning |", "|---|---|---|"]
    given = (inspect.getdoc(of) or "").partition("Args:\n")[2]
    for name, message in re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", given, re.MULTILINE):
        words = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", " ".join(message.split())).replace("``", "`")
        kind = types.pop(name).replace("|", "\\|")
        lines.append(f"| `{name}` | `{kind}` | {words} |")
    if types:
        raise ValueError(f"{of.__name__} does not describe {', '.join(types)}")
    return "\n".join(lines) + "\n"


def with_fields(text: str) -> str:
    """A hook's page with its tables of fields made again: approval channels and models have some."""
    made = "\n".join(map(described_fields, (ApprovalRequest, Approved)))
    fact, provider = described_fields(RequestFact), described_fields(Provider)
    text = _PROVIDER.sub(lambda match: f"{match[1]}{provider}{match[2]}", text)
    text = _FACT.sub(lambda match: f"{match[1]}{fact}{match[2]}", text)
    asked = "\n".join(map(described_fields, (ModelRequest, ModelReply)))
    text = _MODEL.sub(lambda match: f"{match[1]}{asked}{match[2]}", text)
    return _FIELDS.sub(lambda match: f"{match[1]}{made}{match[2]}", text)


def _signature(name: str, declared: Any) -> str:
    if isinstance(declared, property) and declared.fget is not None:
        return f"{name}: {inspect.signature(declared.fget).return_annotation}"
    method: Any = declared
    before = "async " if inspect.iscoroutinefunction(method) else ""
    signature = inspect.signature(method)
    given = [item for key, item in signature.parameters.items() if key != "self"]
    # Annotations are quoted, and so are default texts: only the quotes of annotations go.
    whole = re.sub(r"(: |-> )'([^']+)'", r"\1\2", str(signature.replace(parameters=given)))
    return f"{before}{name}{whole}"


def with_tables(text: str) -> str:
    """A page with its tables made again."""
    return _PLACE.sub(lambda match: f"{match[1]}{agent_fields()}{match[2]}", text)


def _words(hint: Any) -> str:
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if hint in plain:
        return plain[hint]
    args = [arg for arg in get_args(hint) if arg is not type(None)]
    origin = get_origin(hint)
    if origin is Annotated:
        return _words(args[0])
    if origin is tuple:
        return "a list"
    if origin is dict or (isinstance(hint, type) and issubclass(hint, BaseModel)):
        return "a table"
    if args and all(isinstance(arg, str) for arg in args):
        return ", ".join(f"`{arg}`" for arg in args)
    return " or ".join(_words(arg) for arg in args)


if __name__ == "__main__":
    OFFICIAL.write_text(official(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
    KIT.write_text(kit(), encoding="utf-8")
    OPTIONS.write_text(options(), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    DIRECTORY.write_text(with_others(DIRECTORY.read_text(encoding="utf-8")), encoding="utf-8")
    for each in WITH_OPTIONAL:
        page = hook_page(each)
        page.write_text(with_optional(page.read_text(encoding="utf-8"), each), encoding="utf-8")
    for page in words.pages():
        text = page.read_text(encoding="utf-8")
        if (again := words.made(page, text)) != text:
            page.write_text(again, encoding="utf-8")
    for each in ("approval", "model"):
        page = hook_page(each)
        page.write_text(with_fields(page.read_text(encoding="utf-8")), encoding="utf-8")
