"""The effects that a folder's files would have, in words for the trust question.

Settings are classified by name and value without loading plugins, because an unknown plugin may
start a command, too. Unclassified settings are listed last, so that nothing is omitted.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

from delf.errors import ConfigurationError
from delf.records import dataclass
from delf.trust.decisions import digest_items
from delf.trust.folders import is_file, leaves, parse_toml, path_text, read_file, texts_in
from delf_engine.config import PREFIX, AgentConfig, InProject
from delf_engine.project.folder import Folder
from delf_engine.project.paths import is_local, leads_outside

Kind = Literal["start", "run", "instruct", "contact", "read", "loosen", "reach", "ask", "set"]
KINDS: Final[Mapping[Kind, str]] = {
    "start": "start programs",
    "run": "run code",
    "instruct": "instruct the model",
    "contact": "contact addresses",
    "read": "read variables",
    "loosen": "change permissions and approvals",
    "reach": "reach outside of the folder",
    "ask": "choose models",
    "set": "change other settings",
}
"""The heading of each kind of effect, in display order."""

_COMMAND_KEYS: Final = frozenset({"command", "commands", "args", "rules", "cwd", "env"})
# Matches keys that may loosen a permission. The fields of ``AgentConfig`` declare their effects, so
# their names are not tested.
_PERMISSION_KEY: Final = re.compile(
    r"allow|approv|confirm|isolation|sandbox|effects|annotations|sampling|others|trust|flows|mode$"
    r"|^unpriced|budget|learn|default|libs|^own_"
)
_MODEL_KEY: Final = re.compile(r"(^|_)llm$")
_ADDRESS: Final = re.compile(
    r"\b([A-Za-z][A-Za-z0-9+.-]{0,20})://(?:[^\s/?#@]*@)?([^\s/?#,;'\"<>\\]*)"
)
_ADDRESS_KEY: Final = re.compile(r"(^|_)(host|hostname|server|endpoint|base_url|url)s?$")
_VARIABLE_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)")
_FRONT_MATTER_MARK: Final = "---"
_SPECIFICATION_KEYS: Final = frozenset({"openapi", "swagger"})
# Matches the keys of an OpenAPI specification whose addresses delf contacts.
_SERVER_KEY: Final = re.compile(r"\b(servers|host|basePath|schemes|tokenUrl|authorizationUrl)\b")
_MAX_VALUE_CHARACTERS: Final = 200
_MAX_PATH_PARTS: Final = 3
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_YAML_BYTES: Final = 256 * 1024
_MAX_BRACKETS: Final = 200
# The maximum number of values in a YAML document after its aliases are replaced by copies.
_MAX_YAML_VALUES: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Something that a file of a project folder makes delf do once the folder is trusted.

    Args:
        kind: The kind of effect.
        what: The program, address or file that would be used.
        where: The file and the key of the setting.
    """

    kind: Kind
    what: str
    where: str


def effects(folder: Folder) -> list[Effect]:
    """Return all that the folder's files can make delf do, without duplicates, grouped by kind.

    Effects of one kind are in the order of the files.
    """
    distinct_effects = dict.fromkeys(_effects_by_file(folder))
    order = list(KINDS)
    return sorted(distinct_effects, key=lambda effect: order.index(effect.kind))


class _YamlLimit:
    """A limit on the bytes of YAML that are parsed in a folder, because parsing YAML is slow."""

    def __init__(self) -> None:
        self._remaining_bytes = _MAX_YAML_BYTES

    def add(self, path: Path) -> bool:
        """Add a file's size to those of earlier files; return True if the sum exceeds the limit."""
        if is_file(path):
            self._remaining_bytes -= path.stat().st_size
        return self._remaining_bytes < 0


def _effects_by_file(folder: Folder) -> Iterator[Effect]:
    """Yield what each file of a folder makes delf do."""
    yaml_limit = _YamlLimit()
    for name in folder.items:
        path = folder.root / name
        if path == folder.file:
            yield from _document_effects(name, folder.document, folder.root)
        elif path == folder.env.path:
            yield from _variable_effects(name, folder)
        elif name in folder.links_outside:
            yield Effect(kind="reach", what=folder.links_outside[name], where=f"{name}, a link")
        else:
            yield from _effects_by_type(name, path, folder, yaml_limit)


def _effects_by_type(
    name: str, path: Path, folder: Folder, yaml_limit: _YamlLimit
) -> Iterator[Effect]:
    """Yield what a file makes delf do, judged by its suffix, permissions and first characters."""
    suffix = path.suffix.lower()
    # Python imports no file whose name ends in ".PY", so the case of this suffix counts.
    if path.suffix == ".py" or os.access(path, os.X_OK):
        yield Effect(kind="run", what=name, where=name)
    elif suffix == ".md":
        short_name = _shorten_deep_path(name)
        yield Effect(kind="instruct", what=short_name, where=short_name)
    elif suffix in (".json", ".toml"):
        yield from _file_effects(name, path, folder, exceeds_yaml_limit=False)
    elif suffix in (".yaml", ".yml"):
        is_exceeded = yaml_limit.add(path)
        yield from _file_effects(name, path, folder, exceeds_yaml_limit=is_exceeded)
    elif _has_front_matter(path, folder.root):
        # The file describes a worker: a program with settings in YAML.
        yield Effect(kind="run", what=name, where=name)
        is_exceeded = yaml_limit.add(path)
        yield from _file_effects(name, path, folder, exceeds_yaml_limit=is_exceeded)
    elif name not in folder.named_files:
        # No setting passes the file to a plugin, which might execute the file. For example, the
        # file is here because a plugin has declared the file as its input.
        yield Effect(kind="set", what=name, where=name)
    elif _begins_like_json(path, folder.root):
        # The plugin of the setting decides the format of the file, whatever the suffix is.
        yield from _file_effects(name, path, folder, exceeds_yaml_limit=False)
    else:  # the plugin may execute the file
        yield Effect(kind="run", what=name, where=name)


def _shorten_deep_path(name: str) -> str:
    """Shorten a path of more than three parts to its first two parts: ``a/b/…``.

    All deep paths below ``a/b`` get the same text, and are therefore listed only once.
    """
    parts = name.split("/")
    if len(parts) <= _MAX_PATH_PARTS:
        return name
    return "/".join([*parts[: _MAX_PATH_PARTS - 1], "…"])


def _has_front_matter(path: Path, root: Path) -> bool:
    return _begins_with(path, root, (_FRONT_MATTER_MARK,))


def _begins_like_json(path: Path, root: Path) -> bool:
    """Return True if a file begins like JSON: with ``{``, ``[``, or the ``/`` of a comment.

    Return True, too, if the file cannot be read.
    """
    return _begins_with(path, root, ("{", "[", "/"))


def _begins_with(path: Path, root: Path, marks: tuple[str, ...]) -> bool:
    try:
        content = read_file(path, root, _MAX_BYTES) or b""
    except ConfigurationError:
        return True  # the caller then reads the file's settings, and reports the error
    return content.decode("utf-8-sig", "replace").lstrip().startswith(marks)


def _file_effects(
    name: str, path: Path, folder: Folder, *, exceeds_yaml_limit: bool
) -> Iterator[Effect]:
    """Yield the effects of the settings in a JSON, TOML, YAML or Markdown file.

    A file that cannot be parsed counts as a file that runs code. ``exceeds_yaml_limit`` is True if
    the folder has more YAML than delf parses.
    """
    text = ""
    try:
        content = read_file(path, folder.root, _MAX_BYTES) or b""
        text = content.decode("utf-8-sig", "replace")
        is_changed = digest_items(content) != folder.items[name]
        _check_can_be_shown(is_changed=is_changed, exceeds_yaml_limit=exceeds_yaml_limit)
        document = _document(path, text)
    except (ConfigurationError, ValueError, RecursionError, ImportError) as error:
        yield Effect(kind="run", what=f"{name}, which cannot be shown: {error}", where=name)
        yield from _text_effects(text[:_MAX_YAML_BYTES], name, folder.root)
        return
    found_effects = list(_document_effects(name, document, folder.root))
    # Of an OpenAPI specification, delf contacts only the servers. Other settings and addresses, as
    # in its descriptions and examples, have no effect.
    if not document.keys().isdisjoint(_SPECIFICATION_KEYS):
        found_effects = [effect for effect in found_effects if _SERVER_KEY.search(effect.where)]
    risky_effects = [effect for effect in found_effects if effect.kind != "set"]
    # Harmless settings are not shown one by one: a file of only such settings is one effect.
    yield from risky_effects or [Effect(kind="set", what=name, where=name)]


def _check_can_be_shown(*, is_changed: bool, exceeds_yaml_limit: bool) -> None:
    """Raise if the settings in a file cannot be shown.

    Args:
        is_changed: Whether the file was changed after its digest was computed. The person's trust
            will apply to the content with that digest, so the changed content must not be shown.
        exceeds_yaml_limit: Whether the folder has more YAML than delf parses.

    Raises:
        ValueError: If the settings cannot be shown; the message is the reason.
    """
    if is_changed:
        raise ValueError("the file was changed just now")
    if exceeds_yaml_limit:
        raise ValueError("the folder has too much YAML")


def _document(path: Path, text: str) -> Mapping[str, Any]:
    """Parse a JSON, TOML or YAML document, or the front matter of another file.

    A file with another suffix and without front matter is parsed as JSON.

    A document that is no mapping, such as a list, is returned under the key ``""``.
    """
    suffix = path.suffix.lower()
    has_front_matter = text.lstrip().startswith(_FRONT_MATTER_MARK)
    document: Any
    if suffix == ".toml":
        document = parse_toml(text)
    elif suffix in (".yaml", ".yml"):
        document = _parse_yaml(text)
    elif has_front_matter and suffix != ".json":
        # The front matter is between two lines with the mark.
        _, _, text_after_mark = text.partition(_FRONT_MATTER_MARK)
        front_matter, _, _ = text_after_mark.partition(f"\n{_FRONT_MATTER_MARK}")
        document = _parse_yaml(front_matter)
    else:
        document = json.loads(text)
    if isinstance(document, dict):
        return cast("Mapping[str, Any]", document)
    return {"": document}


def _parse_yaml(text: str) -> Any:
    """Parse a YAML document.

    Raises:
        ValueError: If the document is invalid, has too many brackets or values, or contains itself.
    """
    # Parsing time grows with the number of open brackets.
    if text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise ValueError(f"it has more than {_MAX_BRACKETS} brackets")
    import yaml  # installed by the plugins that read YAML

    try:
        root_node = cast("Any", yaml).compose(text, Loader=yaml.SafeLoader)
        return _convert_yaml_node(root_node, frozenset(), itertools.count())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _convert_yaml_node(node: Any, outer_ids: frozenset[int], counter: Iterator[int]) -> Any:
    """Convert a YAML node to dicts, lists and texts.

    Each alias becomes a copy of the list or table that it refers to, because the place of the alias
    decides the effect of its values.

    Args:
        node: The node.
        outer_ids: The ids of the lists and tables around the node.
        counter: Counts the converted nodes.

    Raises:
        ValueError: If the node contains itself, or the document has too many values.
    """
    if next(counter) >= _MAX_YAML_VALUES or id(node) in outer_ids:
        raise ValueError("it has too many values, or contains itself")
    if node is None:  # the document is empty
        return None
    if isinstance(node.value, str):
        return node.value
    convert = partial(_convert_yaml_node, outer_ids=outer_ids | {id(node)}, counter=counter)
    if node.tag.endswith(":seq"):
        return list(map(convert, node.value))
    return {str(convert(key)): convert(item) for key, item in node.value}


def _variable_effects(name: str, folder: Folder) -> Iterator[Effect]:
    """Yield what the variables in a folder's ``.env`` file make delf do."""
    for variable, value in folder.env.entries:
        yield from _text_effects(value, f"{name}: {variable}", folder.root)
        if variable.startswith(PREFIX):
            yield from _value_effects(_setting_path(variable), variable, value, name)
        yield Effect(kind="set", what=variable, where=name)


def _setting_path(variable: str) -> tuple[str, ...]:
    """Return the path of the setting that an environment variable sets.

    The path of an agent's setting is complete: ``DELF_LLM__BASE_URL`` gives
    ``("agent", "llm", "base_url")``. For any other setting, the path has only the last key, which
    tells the effect: ``DELF_SHOP_URL`` gives ``("shop_url",)``, and ``DELF_SHOP_AUTH__COMMAND``
    gives ``("command",)``.
    """
    keys = variable.removeprefix(PREFIX).lower().split("__")
    if keys[0] in AgentConfig.model_fields:
        return ("agent", *keys)
    return (keys[-1],)


def _document_effects(name: str, document: Mapping[str, Any], root: Path) -> Iterator[Effect]:
    """Yield what the settings in a document make delf do.

    A setting that has no other effect yields an effect of the kind ``set``.
    """
    for path, value in leaves(document):
        key = path_text(path)
        place = f"{name}: {key}"
        value_effects = list(_value_effects(path, key, value, name))
        if not value_effects:
            value_effects += _list_effects(path, value, name)
        for text in texts_in(value):
            value_effects += _text_effects(text, place, root)
        yield from value_effects or [Effect(kind="set", what=key, where=name)]


def _list_effects(path: tuple[str, ...], value: Any, file: str) -> Iterator[Effect]:
    """Yield the effects of the items of a list.

    An item counts as a value at the list's own path; see :func:`_value_effects`. An item that is a
    table has the effects of its values.
    """
    if not isinstance(value, list):
        return
    # A stack, onto which items are put in reverse, so that they are handled in order.
    pending: list[tuple[tuple[str, ...], Any]] = [(path, value)]
    while pending:
        inner_path, inner = pending.pop()
        if isinstance(inner, list):
            pending += [(inner_path, item) for item in reversed(cast("list[Any]", inner))]
        elif isinstance(inner, Mapping):
            table = cast("Mapping[str, Any]", inner)
            pending += [((*inner_path, key), item) for key, item in reversed([*table.items()])]
        else:
            yield from _value_effects(inner_path, path_text(inner_path), inner, file)


def _value_effects(path: tuple[str, ...], key: str, value: Any, file: str) -> Iterator[Effect]:
    """Yield the effects of a setting; the setting ``command``, for example, starts a program.

    The class ``AgentConfig`` declares the effects of the agent's settings; the effect of any other
    setting is guessed from the setting's name.

    Args:
        path: The keys that lead to the setting in the file.
        key: The setting as the user knows it: the path as text, or the environment variable.
        value: The setting's value.
        file: The name of the file.
    """
    text = f"{key} = {_display_value(value)}"
    file_and_key = f"{file}: {key}"  # for an effect whose text does not contain the key
    declared_effect = _declared_effect(path)
    last_key = path[-1] if path else ""
    connection_type = value if last_key == "type" else None  # as in ``type = "shell"``
    # The first effect that fits counts, the most dangerous ones first.
    if _names_command(path) or connection_type == "shell":
        yield Effect(kind="start", what=text, where=file)
    elif isinstance(connection_type, str) and "." in connection_type:
        yield Effect(kind="run", what=f"the class {connection_type}", where=file_and_key)
    elif declared_effect is not None:
        yield Effect(kind=declared_effect, what=text, where=file)
    elif _may_loosen_permission(path):
        yield Effect(kind="loosen", what=text, where=file)
    elif _ADDRESS_KEY.search(last_key) and isinstance(value, str) and "://" not in value:
        # An address with "://" is a URL, for which _text_effects() yields an effect.
        yield Effect(kind="contact", what=_display_value(value), where=file_and_key)
    elif _MODEL_KEY.search(last_key):
        yield Effect(kind="ask", what=text, where=file)


def _names_command(path: tuple[str, ...]) -> bool:
    """Return whether a setting's path names a command or a part of a command."""
    last_word = path[-1].rpartition("_")[2] if path else ""  # "command" of DELF_SHOP_COMMAND
    return not _COMMAND_KEYS.isdisjoint({*_setting_keys(path), last_word})


def _setting_keys(path: tuple[str, ...]) -> set[str]:
    """Return the keys in a setting's path that may tell the setting's effect.

    The section, and the name that the user chose for a connection or plugin, are left out:
    ``agent.llm.model`` gives ``llm`` and ``model``, and ``connections.shop.auth.command`` gives
    ``auth`` and ``command``. The last key is always included.
    """
    is_of_agent = path[:1] == ("agent",)
    keys = path[1:] if is_of_agent else path[2:]
    last_key = path[-1] if path else ""
    return {*keys, last_key}


def _may_loosen_permission(path: tuple[str, ...]) -> bool:
    """Return whether a key in a setting's path may loosen a permission.

    The name of a field of ``AgentConfig``, such as ``libs`` in ``agent.libs.pandas``, does not
    count, because ``AgentConfig`` declares the effect of the field.
    """
    is_agent_field = _agent_setting(path) in AgentConfig.model_fields
    keys = path[2:] if is_agent_field else _setting_keys(path)  # of agent.libs.pandas, only pandas
    return any(map(_PERMISSION_KEY.search, keys))


def _declared_effect(path: tuple[str, ...]) -> Kind | None:
    """Return the kind of effect that the class ``AgentConfig`` declares for a setting, if any.

    Settings that name a model, such as ``agent.llm``, have the effect ``ask``. If such a setting is
    a table, its key ``model`` has this effect, and its other keys have no declared effect.
    """
    field = AgentConfig.model_fields.get(_agent_setting(path))
    if field is None:
        return None
    markers = [marker for marker in field.metadata if isinstance(marker, InProject)]
    if not markers:
        return None
    declared_kind = markers[0].effect
    is_setting_of_model = declared_kind == "ask"
    # The path is "agent", the setting, and the keys in its table, if the setting is a table.
    keys_in_table = path[2:]
    names_model = not keys_in_table or keys_in_table == ("model",)
    if is_setting_of_model and not names_model:
        return None  # such as base_url, whose effect is guessed from its name
    return declared_kind


def _agent_setting(path: tuple[str, ...]) -> str:
    """Return the name of the agent's setting at a path; empty for any other path."""
    if path[:1] == ("agent",) and len(path) > 1:
        return path[1]
    return ""


def _text_effects(text: str, place: str, root: Path) -> Iterator[Effect]:
    """Yield the effects of a text in a setting.

    The text can name an address to contact, an environment variable to read, or a path outside of
    the project.
    """
    for scheme, host in dict.fromkeys(_ADDRESS.findall(text)):
        if not is_local(scheme):
            yield Effect(kind="contact", what=f"{scheme}://{host}", where=place)
    for variable in _VARIABLE_REFERENCE.findall(text):
        yield Effect(kind="read", what=variable, where=place)
    if leads_outside(text, root):
        yield Effect(kind="reach", what=_display_value(text), where=place)


def _display_value(value: Any) -> str:
    """Format a setting's value as text; of a long text, only the two ends."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _MAX_VALUE_CHARACTERS:
        return text
    half = _MAX_VALUE_CHARACTERS // 2
    return f"{text[:half]} … {text[-half:]} ({len(text):,} characters)"
