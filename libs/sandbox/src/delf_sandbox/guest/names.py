"""The names of tools in a script: spelled, imported, and taken for something else."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delf_sandbox.guest.imports import forgotten_imports
from delf_sandbox.guest.nodes import PICK, TOOLS, AmbiguousError, at, attribute, call, name, tool
from delf_sandbox.guest.scopes import CallPlace, Place, Scope, Seen

BUILTINS = frozenset(dir(builtins))


def _nothing(_name: str) -> bool:
    return False


@dataclass(frozen=True)
class Known:
    """The names that a script finds at its beginning.

    Args:
        tools: The methods of each connection by its name; none for a plain tool.
        changing: The write actions among them, as ``mail.send``.
        can_import: Whether there is a module of a name.
        is_bound: Whether an earlier script left a name.
        is_async: Whether that is an async function.
    """

    tools: Mapping[str, Sequence[str]]
    changing: Collection[str] = ()
    can_import: Callable[[str], bool] = _nothing
    is_bound: Callable[[str], bool] = _nothing
    is_async: Callable[[str], bool] = _nothing


def same_name(name: str) -> str:
    """Normalise a name, so that spellings of one name are equal."""
    return name.replace("_", "").replace("-", "").lower()


def taken_note(taken: Sequence[str]) -> str:
    """Describe the names of tools that a script used for something else."""
    if not taken:
        return ""
    return (
        f"\n(In the next script {', '.join(taken)} mean the tools again: name nothing like a tool.)"
    )


class ToolNames:
    """Finds the calls of tools in a script, and gives tools their names back, in place.

    Args:
        tree: The script.
        known: The initial names.
    """

    def __init__(self, tree: ast.Module, known: Known) -> None:
        self.seen = Seen(tree)
        self.known = known
        self.calls: dict[int, str] = {}
        """The calls of tools, by action, as ``mail.send``."""
        self.perhaps: set[int] = set()
        """The calls whose name may refer to a function of the script."""
        self.taken: dict[str, str] = {}
        """Names of tools that the script uses for something else: ``data`` or ``function``."""
        self._spellings = _spellings(known.tools)
        has_new = self._import_forgotten(tree)
        if (self.seen.imports and self._tidy_imports()) or has_new:
            self.seen = Seen(tree)  # what comes after them has moved
        self._find_taken()
        for place, is_called in self.seen.attributes:
            self._spell_attribute(place, is_called)
        for place, is_called in self.seen.loads:
            self._spell_name(place, is_called)
        for place in self.seen.calls.values():
            self._find_tool_of(place)

    def is_free(self, word: str, scope: Scope) -> bool:
        """Return whether a name only has its initial meaning."""
        return scope.find(word) is None

    def _is_unknown(self, word: str, scope: Scope) -> bool:
        return (
            self.is_free(word, scope)
            and word not in self.known.tools
            and word not in BUILTINS
            and not word.startswith("__")
            and not self.known.is_bound(word)
        )

    def _find_tool_of(self, place: CallPlace) -> None:
        tools, node = self.known.tools, place.node
        match node.func:
            case ast.Name(id=word) if word in tools and not tools[word]:
                how = self._how_taken(word, place.scope)
                if how is None:
                    return
                if how == "data" and place.scope.find(word) is self.seen.module:
                    key = ast.Constant(value=word, **at(node))
                    node.func = call(PICK, name(node.func, word), key)
                    self.perhaps.add(id(node))
                elif how:
                    node.func = tool(node.func, word)
                self.calls[id(node)] = word
            case ast.Attribute(value=ast.Name(id=word) as inner, attr=attr) if (
                word in tools
                and not tools[word]
                and same_name(attr) == same_name(word)
                and place.scope.find(word) is None
            ):  # `import weather`
                node.func = inner
                self.calls[id(node)] = word
            case ast.Attribute(value=ast.Name(id=word)) as function if tools.get(word):
                how = self._how_taken(word, place.scope)
                self._spell_method(function, tools[word])
                if function.attr.startswith("_"):
                    return
                if how is None or (how and function.attr not in tools[word]):
                    return
                if how:
                    function.value = tool(function, word)
                self.calls[id(node)] = f"{word}.{function.attr}"
            case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(word))):
                if table == TOOLS and not tools.get(word):
                    self.calls[id(node)] = word
            case (
                ast.Attribute(
                    value=ast.Subscript(
                        value=ast.Name(id=table), slice=ast.Constant(value=str(word))
                    )
                ) as function
            ) if table == TOOLS:
                self._spell_method(function, tools[word])
                self.calls[id(node)] = f"{word}.{function.attr}"
            case _:
                pass

    @staticmethod
    def _spell_method(function: ast.Attribute, methods: Sequence[str]) -> None:
        if function.attr not in methods:
            like = (m for m in methods if same_name(m) == same_name(function.attr))
            function.attr = _only(like) or function.attr

    def _how_taken(self, word: str, scope: Scope) -> str | None:
        """Return how a tool's name is rebound here: empty if not, None for a parameter."""
        found = scope.find(word)
        if found is None:
            return ""
        return None if "param" in found.names[word] else self.taken.get(word, "data")

    def _find_taken(self) -> None:
        """Find the names of tools that the script binds; functions of such names are dropped."""
        tools = self.known.tools
        for scope in self._all_scopes():
            for word, how in scope.names.items():
                if word in tools and "param" not in how and scope.kind != "class":
                    self.taken.setdefault(word, "data")
        for place in self.seen.definitions:
            is_given = isinstance(place.node, ast.Assign)
            defined: str = place.node.targets[0].id if is_given else place.node.name
            if defined in tools and place.scope.kind != "class":
                self._drop_stub(place, defined)
                self.taken[defined] = "function"

    def _all_scopes(self) -> Iterator[Scope]:
        yield self.seen.module
        yield from self.seen.scopes.values()

    def _drop_stub(self, place: Place, defined: str) -> None:
        """Drop a function or class with a tool's name, which is a copy of the prompt's stub."""
        for inner in ast.walk(place.node):
            match inner:
                case ast.Call(func=ast.Name(id=word)) if word in self.known.tools:
                    pass
                case ast.Call(func=ast.Attribute(value=ast.Name(id=word))) if self.known.tools.get(
                    word
                ):
                    pass
                case _:
                    continue
            raise AmbiguousError.about(
                place.node,
                f"{defined} is a tool's name, and here that of a function which calls tools: "
                "give it another name",
            )
        for load, is_called in self.seen.loads:
            if load.node.id == defined and load.scope.find(defined) is not None and not is_called:
                load.put(tool(load.node, defined))
        place.put(ast.Pass(**at(place.node)))

    def _spell_attribute(self, place: Place, is_called: bool) -> None:
        """``functions.weather`` and ``tools.shop`` are weather and shop."""
        node = place.node
        word = getattr(node.value, "id", "__")  # it may have been given back to a tool
        if same_name(word) in self._spellings or not self._is_unknown(word, place.scope):
            return
        found = self._spellings.get(same_name(node.attr))
        if found is not None and (is_called or not found[1]):
            place.put(self._spelled(node, found))

    def _spell_name(self, place: Place, is_called: bool) -> None:
        """``Shop`` is shop, and ``shop_find_orders()`` is shop.find_orders()."""
        node = place.node
        if self._is_unknown(node.id, place.scope):
            found = self._spellings.get(same_name(node.id))
            if found is not None and (is_called or not found[1]):
                place.put(self._spelled(node, found))
            elif is_called and node.id[:1].isupper() and _is_record(place.box):
                place.put(name(node, "dict"))  # of a type that is in the prompt

    def _spelled(self, node: Any, found: tuple[str, str]) -> ast.expr:
        word, method = found
        return attribute(tool(node, word), method) if method else tool(node, word)

    def _import_forgotten(self, tree: ast.Module) -> bool:
        """Import modules that the script uses without an import; return whether any."""
        unknown: dict[str, list[str | None]] = {}
        whole = {id(place.node.value): place.node.attr for place, _ in self.seen.attributes}
        for place, _ in self.seen.loads:
            word = place.node.id
            if self._is_unknown(word, place.scope) and same_name(word) not in self._spellings:
                unknown.setdefault(word, []).append(whole.get(id(place.node)))
        for node in _annotations(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=word), attr=part):
                    pass
                case ast.Name(id=word):
                    part = None
                case _:
                    continue
            if self._is_unknown(word, self.seen.module):
                unknown.setdefault(word, []).append(part)
        if not unknown or any("*" in (a.name for a in p.node.names) for p, _ in self.seen.imports):
            return False
        new = forgotten_imports(unknown, self.known.can_import, tree.body[0])
        first = next(
            (index for index, node in enumerate(tree.body) if not _is_ahead(node)), len(tree.body)
        )
        tree.body[first:first] = new
        return bool(new)

    def _tidy_imports(self) -> bool:
        """Drop imports of tools, and unused imports of missing modules."""
        edits: list[tuple[list[ast.stmt], int, list[ast.stmt]]] = []
        for place, in_try in self.seen.imports:
            new = self._import(place, in_try)
            if new is not None:
                edits.append((place.box, place.key, new))
        for box, index, new in reversed(edits):
            box[index : index + 1] = new or [ast.Pass(**at(box[index]))]
        return bool(edits)

    def _import(self, place: Place, in_try: bool) -> list[ast.stmt] | None:
        """Return the statements that replace an import; None to keep it."""
        node = place.node
        module = getattr(node, "module", None) or ""
        kept: list[ast.alias] = []
        new: list[ast.stmt] = []
        for item in node.names:
            full = item.name if isinstance(node, ast.Import) else module
            if getattr(node, "level", 0) == 0 and self.known.can_import(full):
                kept.append(item)
                continue
            tool = self._imported_tool(item.name, module, isinstance(node, ast.Import))
            bound = item.asname or item.name.partition(".")[0]
            if tool is not None:
                if item.asname or (tool[1] or tool[0]) != bound or tool[1]:
                    target = ast.Name(id=bound, ctx=ast.Store(), **at(node))
                    value = self._spelled(node, tool)
                    new.append(ast.Assign(targets=[target], value=value, **at(node)))
            elif in_try or (self._misses_names() if item.name == "*" else self._is_read(bound)):
                kept.append(item)
        if len(kept) == len(node.names):
            return None
        if kept:
            node.names = kept
            new.insert(0, node)
        return new

    def _imported_tool(self, word: str, module: str, is_plain: bool) -> tuple[str, str] | None:
        last = module.rpartition(".")[2] if module else ""
        if not is_plain and self.known.tools.get(last) and word in self.known.tools[last]:
            return last, word
        found = self._spellings.get(same_name(word))
        return found if found is not None and not (is_plain and found[1]) else None

    def _misses_names(self) -> bool:
        """Return whether undefined names are read that are no tools."""
        return any(
            self._is_unknown(place.node.id, place.scope)
            and same_name(place.node.id) not in self._spellings
            for place, _ in self.seen.loads
        )

    def _is_read(self, word: str) -> bool:
        """Return whether a name is read other than as a prefix of tools, as ``tools.shop``."""
        ahead = {
            id(place.node.value)
            for place, _ in self.seen.attributes
            if same_name(place.node.attr) in self._spellings
        }
        return any(
            place.node.id == word and id(place.node) not in ahead for place, _ in self.seen.loads
        )


def _is_record(node: ast.AST) -> bool:
    """Return whether a call gives nothing but fields."""
    return isinstance(node, ast.Call) and bool(node.keywords) and not node.args


def _annotations(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the parts of written types: attributes, and names that belong to no attribute."""
    found: list[ast.expr | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=given) | ast.AnnAssign(annotation=given):
                found.append(given)
            case ast.FunctionDef(returns=given) | ast.AsyncFunctionDef(returns=given):
                found.append(given)
            case _:
                pass
    waiting: list[ast.AST] = [node for node in found if node is not None]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.Attribute):
            waiting.extend(ast.iter_child_nodes(node))


def _is_ahead(node: ast.stmt) -> bool:
    """Return whether a statement has to be the first: a docstring or a ``__future__`` import."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.ImportFrom(module="__future__"):
            return True
        case _:
            return False


def _only(found: Iterator[str]) -> str | None:
    listed = list(found)
    return listed[0] if len(listed) == 1 else None


def _spellings(tools: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, str]]:
    """Return each tool by its normalised name, without ambiguous ones.

    Before a method, singular and plural are equal, as ``worker_call`` for workers.call.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for word, methods in tools.items():
        found.setdefault(same_name(word), []).append((word, ""))
        for method in methods:
            for form in (word, word[:-1] if word.endswith("s") else word + "s"):
                found.setdefault(same_name(form + method), []).append((word, method))
    for word, methods in tools.items():
        for method in methods:
            own = found.setdefault(same_name(method), [])
            if all(item[1] for item in own):
                own.append((word, method))
    return {key: items[0] for key, items in found.items() if len(items) == 1}
