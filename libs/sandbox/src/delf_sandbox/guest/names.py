"""Tool names in a script: other spellings, imports, and rebinding."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from delf_sandbox.guest.imports import missing_imports
from delf_sandbox.guest.nodes import (
    CALLABLE_OR_TOOL,
    TOOLS,
    AmbiguousError,
    attribute,
    call,
    name,
    position_of,
    tool,
)
from delf_sandbox.guest.scopes import CallPlace, Place, Scope, ScriptSyntax

BUILTINS = frozenset(dir(builtins))


def _false_for_any_name(_name: str) -> bool:
    """Return False: by default, nothing can be imported, and no earlier script has run."""
    return False


@dataclass(frozen=True)
class InitialNames:
    """The names that are defined when a script starts.

    Args:
        tools: A mapping from the name of each connection or plain tool to its action names; a plain
            tool has none.
        write_actions: The actions that change something, such as ``mail.send``.
        can_import: Returns True if a module may be imported.
        is_bound: Returns True if an earlier script defined a name.
        is_async: Returns True if an earlier script defined a name as an async function.
    """

    tools: Mapping[str, Sequence[str]]
    write_actions: Collection[str] = ()
    can_import: Callable[[str], bool] = _false_for_any_name
    is_bound: Callable[[str], bool] = _false_for_any_name
    is_async: Callable[[str], bool] = _false_for_any_name

    def is_connection(self, name: str) -> bool:
        """Return True if a name is that of a connection, whose actions are the tools."""
        return bool(self.tools.get(name))

    def is_plain_tool(self, name: str) -> bool:
        """Return True if scripts call a tool by this name alone, without a connection."""
        return name in self.tools and not self.tools[name]


def normalized_name(name: str) -> str:
    """Return a name in lower case without ``_`` and ``-``, to compare spellings of one name."""
    return name.replace("_", "").replace("-", "").lower()


def rebound_names_note(rebound_names: Sequence[str]) -> str:
    """Return a note for the model about the tool names that its script bound to something else.

    The note is empty if there are no such names.
    """
    if not rebound_names:
        return ""
    names = ", ".join(rebound_names)
    return f"\n(In the next script {names} mean the tools again: name nothing like a tool.)"


class _ToolName(NamedTuple):
    """The two parts of a tool's name: ``method`` is empty for a connection or plain tool itself."""

    connection: str
    method: str

    @property
    def is_action(self) -> bool:
        """True for an action of a connection; False for a connection or plain tool itself."""
        return bool(self.method)


class ToolNames:
    """Finds the tool calls in a script, and corrects the spelling of tool names in place.

    Args:
        tree: The parsed script.
        initial_names: The names that are defined when the script starts.
    """

    def __init__(self, tree: ast.Module, initial_names: InitialNames) -> None:
        self.syntax = ScriptSyntax(tree)
        self.initial_names = initial_names
        self.calls: dict[int, str] = {}
        """A mapping from the ``id()`` of each node that calls a tool to the action, such as
        ``mail.send``.
        """
        self.uncertain: set[int] = set()
        """The ``id()`` of each call whose name may refer to a tool or to a value of the script."""
        self.rebound_names: dict[str, str] = {}
        """The tool names that the script rebinds, each mapped to the kind of its new value.

        The kind is ``variable`` or ``function``.
        """
        self._tool_by_spelling = _tools_by_spelling(initial_names.tools)
        has_new_imports = self._add_missing_imports(tree)
        has_removed_imports = self._remove_needless_imports()
        if has_new_imports or has_removed_imports:
            self.syntax = ScriptSyntax(tree)  # the statements after the imports have moved
        self._resolve_rebound_names()
        # A place is a node with its position in the tree, so that the node can be replaced.
        for place, is_called in self.syntax.attributes:
            self._correct_attribute(place, is_called)
        for place, is_called in self.syntax.loads:
            self._correct_name(place, is_called)
        for place in self.syntax.calls.values():
            self._resolve_tool_call(place)

    def is_free(self, word: str, scope: Scope) -> bool:
        """Return True if neither ``scope`` nor a scope that encloses it binds ``word``."""
        return scope.find(word) is None

    def is_builtin(self, word: str, scope: Scope) -> bool:
        """Return True if a name means a builtin in a scope: no script has rebound the name."""
        is_bound = self.initial_names.is_bound(word) or not self.is_free(word, scope)
        return word in BUILTINS and not is_bound

    def _is_unknown(self, word: str, scope: Scope) -> bool:
        """Return True if neither the script, Python, delf nor an earlier script defines a name.

        A name that begins with two underscores counts as known: Python defines ``__name__`` and
        others in the module itself.
        """
        if not self.is_free(word, scope) or word.startswith("__"):
            return False
        is_tool_or_builtin = word in self.initial_names.tools or word in BUILTINS
        return not is_tool_or_builtin and not self.initial_names.is_bound(word)

    def _resolve_tool_call(self, place: CallPlace) -> None:
        """Record a call of a tool, and make sure that the call reaches the tool."""
        # The script may have bound a name such as ``shop`` to something else. The methods for plain
        # tools and actions decide what the name means.
        match place.node.func:
            case ast.Name(id=word):  # ``weather()``
                if self.initial_names.is_plain_tool(word):
                    self._resolve_call_of_plain_tool(place, word)
            case ast.Attribute(value=ast.Name(id=word)) as function:
                if self.initial_names.is_connection(word):  # ``shop.search()``
                    self._resolve_call_of_action(place, function, word)
                # After ``import weather``, ``weather.weather()`` means ``weather()``.
                elif self._is_tool_in_module(function, word, place.scope):
                    place.node.func = function.value
                    self.calls[id(place.node)] = word
            # _correct_name() has replaced ``Weather()`` by ``TOOLS["weather"]()``, which can only
            # mean the tool.
            case ast.Subscript() as item:
                word = tool_of_item(item)
                if word and not self.initial_names.is_connection(word):
                    self.calls[id(place.node)] = word
            # _correct_name() has replaced ``Shop.search()`` by ``TOOLS["shop"].search()``.
            case ast.Attribute(value=ast.Subscript() as item) as function:
                word = tool_of_item(item)
                if word:
                    self._correct_method(function, self.initial_names.tools[word])
                    self.calls[id(place.node)] = f"{word}.{function.attr}"
            case _:
                pass

    def _is_tool_in_module(self, function: ast.Attribute, word: str, scope: Scope) -> bool:
        """Return True if an attribute means a plain tool that the script takes for a module.

        After ``import weather``, for example, ``weather.weather`` means the plain tool ``weather``.
        """
        return (
            self.initial_names.is_plain_tool(word)
            and normalized_name(function.attr) == normalized_name(word)
            and self.is_free(word, scope)
        )

    def _resolve_call_of_plain_tool(self, place: CallPlace, word: str) -> None:
        """Record the call ``word(…)`` of a plain tool, and let the call reach the tool."""
        node = place.node
        is_global = place.scope.find(word) is self.syntax.module
        match self._meaning_of(word, place.scope):
            case "tool":
                pass
            case "parameter":  # ``def ask(weather): weather("Oslo")`` calls any function
                return
            # After ``weather = weather("Oslo")``, the call ``weather("Rome")`` means the tool,
            # unless the value of the variable is callable. Only the running script shows that.
            case "variable" if is_global:
                key = ast.Constant(value=word, **position_of(node))
                node.func = call(CALLABLE_OR_TOOL, name(node.func, word), key)
                self.uncertain.add(id(node))
            # The name is a local variable, for which Python would raise UnboundLocalError in
            # ``weather = weather("Oslo")``, or a function whose copied definition was removed. In
            # both cases, the call means the tool.
            case _:
                node.func = tool(node.func, word)
        self.calls[id(node)] = word

    def _resolve_call_of_action(
        self, place: CallPlace, function: ast.Attribute, connection: str
    ) -> None:
        """Record the call of an action, and let the call reach the connection.

        Args:
            place: The call.
            function: The called attribute, such as ``shop.search``.
            connection: The name before the attribute, such as ``shop``. The script may have bound
                the connection's name to something else.
        """
        action_names = self.initial_names.tools[connection]
        meaning = self._meaning_of(connection, place.scope)
        is_private = function.attr.startswith("_")
        if meaning == "parameter" or is_private:
            return
        if meaning == "tool":
            self._correct_method(function, action_names)
        # After ``shop = shop.search("pen")``, ``shop.search("ink")`` still means the connection.
        elif function.attr in action_names:
            function.value = tool(function, connection)
        else:  # such as ``shop.append(…)``: a list's method
            return
        self.calls[id(place.node)] = f"{connection}.{function.attr}"

    @staticmethod
    def _correct_method(function: ast.Attribute, methods: Sequence[str]) -> None:
        """Correct an action's spelling, as ``sendMail`` to ``send_mail``, if only one fits."""
        if function.attr not in methods:
            spelling = normalized_name(function.attr)
            fitting = (method for method in methods if normalized_name(method) == spelling)
            function.attr = _only_item(fitting) or function.attr

    def _meaning_of(self, word: str, scope: Scope) -> str:
        """Return what a tool's name means in a scope.

        Returns:
            ``tool`` if the script does not rebind the name, ``parameter`` if a function has a
            parameter of this name, else the kind of the new value: ``variable`` or ``function``.
        """
        owner = scope.find(word)
        if owner is None:
            return "tool"
        if "param" in owner.binding_kinds[word]:
            return "parameter"
        # An attribute of a class, as in ``class Trip: weather = None``, is not in rebound_names.
        return self.rebound_names.get(word, "variable")

    def _resolve_rebound_names(self) -> None:
        """Record the tool names that the script rebinds, and remove copied definitions of tools.

        Models copy definitions such as ``def fetch(url): ...`` from the prompt. The names of copied
        definitions are recorded, too, so that a note tells the model about them.
        """
        tools = self.initial_names.tools
        for place in self.syntax.definitions:
            # A definition is ``def``, ``class`` or an assignment of a lambda.
            is_lambda = isinstance(place.node, ast.Assign)
            defined_name: str = place.node.targets[0].id if is_lambda else place.node.name
            if defined_name in tools and place.scope.kind != "class":
                self._raise_if_definition_calls_tools(place, defined_name)
                if self._is_copied_definition(place.node, defined_name):
                    self._remove_copied_definition(place, defined_name)
                    self.rebound_names[defined_name] = "function"
        for scope in self._all_scopes():
            for word, binding_kinds in scope.binding_kinds.items():
                is_parameter = "param" in binding_kinds
                if word in tools and not is_parameter and scope.kind != "class":
                    self.rebound_names.setdefault(word, "variable")

    def _all_scopes(self) -> Iterator[Scope]:
        yield self.syntax.module
        yield from self.syntax.scopes.values()

    def _raise_if_definition_calls_tools(self, place: Place, tool_name: str) -> None:
        """Raise if a function or class that has a tool's name calls tools.

        Raises:
            AmbiguousError: If the definition calls tools: the tool's name could mean the definition
                or the tool.
        """
        if any(map(self._is_tool_call, ast.walk(place.node))):
            word = "class" if isinstance(place.node, ast.ClassDef) else "function"
            raise AmbiguousError.at_node(
                place.node,
                f"{tool_name} is the name of a tool, but here also of a {word} that calls tools: "
                f"give the {word} another name",
            )

    def _is_copied_definition(self, node: Any, tool_name: str) -> bool:
        """Return True if a function or class that has a tool's name is a copy from the prompt.

        The prompt shows a plain tool as a function, and a connection as a class with its actions.
        """
        if not isinstance(node, ast.ClassDef):
            return self.initial_names.is_plain_tool(tool_name)
        actions = self.initial_names.tools[tool_name]
        return any(getattr(statement, "name", None) in actions for statement in node.body)

    def _remove_copied_definition(self, place: Place, tool_name: str) -> None:
        """Replace a copied definition of a tool by ``pass``, so that the name means the tool.

        Models sometimes copy the definition of a tool, a ``def`` without a body, from the prompt
        into their scripts.

        Args:
            place: The definition of a function or class that has a tool's name.
            tool_name: The name that the definition and the tool share.
        """
        for load, is_called in self.syntax.loads:
            means_function = load.node.id == tool_name and load.scope.find(tool_name) is not None
            if means_function and not is_called:  # calls are rewritten by _resolve_tool_call()
                load.put(tool(load.node, tool_name))
        place.put(ast.Pass(**position_of(place.node)))

    def _is_tool_call(self, node: ast.AST) -> bool:
        """Return True for a call of a plain tool, a connection or an action of a connection."""
        match node:
            case ast.Call(func=ast.Name(id=word)):
                return word in self.initial_names.tools
            case ast.Call(func=ast.Attribute(value=ast.Name(id=word))):
                return self.initial_names.is_connection(word)
            case _:
                return False

    def _correct_attribute(self, place: Place, is_called: bool) -> None:
        """Replace ``tools.shop`` by the tool ``shop`` if the script has no variable ``tools``."""
        node = place.node
        if not isinstance(node.value, ast.Name):  # an earlier correction has replaced the name
            return
        word = node.value.id
        is_tool = normalized_name(word) in self._tool_by_spelling
        if is_tool or not self._is_unknown(word, place.scope):
            return
        intended_tool = self._tool_by_spelling.get(normalized_name(node.attr))
        if intended_tool is None:
            return
        # An action without its connection, such as ``tools.find_orders``, is corrected only in a
        # call, because it may also be an attribute of an object of the script.
        if is_called or not intended_tool.is_action:
            place.put(self._tool_node(node, intended_tool))

    def _correct_name(self, place: Place, is_called: bool) -> None:
        """Replace another spelling of a tool's name, such as ``Shop`` or ``shop_find_orders()``.

        A call of a record's type, such as ``Order(id=1)``, becomes a call of ``dict``.
        """
        node = place.node
        if not self._is_unknown(node.id, place.scope):
            return
        intended_tool = self._tool_by_spelling.get(normalized_name(node.id))
        if intended_tool is not None:
            # The name of an action without its connection is corrected only in a call.
            if is_called or not intended_tool.is_action:
                place.put(self._tool_node(node, intended_tool))
        elif is_called and node.id[:1].isupper() and _has_only_keywords(place.container):
            # The prompt names types of records, such as ``Order``. They do not exist in the script,
            # where each record is a dict.
            place.put(name(node, "dict"))

    def _tool_node(self, node: Any, intended_tool: _ToolName) -> ast.expr:
        connection = tool(node, intended_tool.connection)
        if intended_tool.method:
            return attribute(connection, intended_tool.method)
        return connection

    def _add_missing_imports(self, tree: ast.Module) -> bool:
        """Add the imports that the script forgot; return True if any were added."""
        attributes_by_unknown_name = self._attributes_by_unknown_name()
        if not attributes_by_unknown_name:
            return False
        for place, _ in self.syntax.imports:
            imported_names = [alias.name for alias in place.node.names]
            if "*" in imported_names:  # a star import may define the names
                return False
        # The tree has a first statement, because the unknown names are in some statement.
        new_imports = missing_imports(
            attributes_by_unknown_name, self.initial_names.can_import, tree.body[0]
        )
        index = 0
        while index < len(tree.body) and _must_come_first(tree.body[index]):
            index += 1
        tree.body[index:index] = new_imports  # in place, because places refer to this list
        return bool(new_imports)

    def _attributes_by_unknown_name(self) -> dict[str, set[str | None]]:
        """Return the attributes that the script reads of each unknown name.

        For ``datetime.date``, the result is ``{"datetime": {"date"}}``; for ``datetime`` alone, it
        is ``{"datetime": {None}}``.
        """
        # For ``datetime.date``, the ``id()`` of the node ``datetime`` is mapped to "date".
        attribute_by_node_id = {
            id(place.node.value): place.node.attr for place, _ in self.syntax.attributes
        }
        attributes_by_unknown_name: defaultdict[str, set[str | None]] = defaultdict(set)
        for place, _ in self.syntax.loads:
            word = place.node.id
            # Another spelling of a tool's name is corrected elsewhere, and needs no import.
            is_tool = normalized_name(word) in self._tool_by_spelling
            if self._is_unknown(word, place.scope) and not is_tool:
                attributes_by_unknown_name[word].add(attribute_by_node_id.get(id(place.node)))
        for word, attribute_name in _names_in_annotations(self.syntax.module.node):
            if self._is_unknown(word, self.syntax.module):
                attributes_by_unknown_name[word].add(attribute_name)
        return attributes_by_unknown_name

    def _remove_needless_imports(self) -> bool:
        """Remove imports of tools, and imports of missing modules that the script does not use.

        Return True if any were removed.
        """
        edits: list[tuple[list[ast.stmt], int, list[ast.stmt]]] = []
        for place, is_in_try in self.syntax.imports:
            replacement = self._replacement_of_import(place, is_in_try)
            if replacement is not None:
                edits.append((place.container, place.key, replacement))
        # Start with the last import, so that the indexes of earlier statements stay valid.
        for statements, index, replacement in reversed(edits):
            nothing = ast.Pass(**position_of(statements[index]))
            statements[index : index + 1] = replacement or [nothing]
        return bool(edits)

    def _replacement_of_import(self, place: Place, is_in_try: bool) -> list[ast.stmt] | None:
        """Return the statements that replace an import; None to keep the import.

        Args:
            place: The import statement.
            is_in_try: Whether the script catches a failure of the import.
        """
        node = place.node
        kept_aliases: list[ast.alias] = []
        assignments: list[ast.stmt] = []
        for item in node.names:
            if self._can_import(node, item):
                kept_aliases.append(item)
            elif (intended_tool := self._imported_tool(node, item)) is not None:
                assignments += self._assignments_of_tool(node, item, intended_tool)
            elif is_in_try or self._is_used(item):
                kept_aliases.append(item)  # the script has to see that the import fails
            # Any other name is left out, because an unused import must not end the script.
        if len(kept_aliases) == len(node.names):
            return None
        if not kept_aliases:
            return assignments
        node.names = kept_aliases
        return [node, *assignments]

    def _can_import(self, node: ast.Import | ast.ImportFrom, item: ast.alias) -> bool:
        if isinstance(node, ast.Import):
            return self.initial_names.can_import(item.name)
        is_absolute = node.level == 0
        return is_absolute and self.initial_names.can_import(node.module or "")

    def _assignments_of_tool(
        self, node: ast.stmt, item: ast.alias, intended_tool: _ToolName
    ) -> list[ast.stmt]:
        """Return the statement ``post = mail`` for the import ``from tools import mail as post``.

        Return no statement for an import that binds a connection or plain tool to its own name.

        Args:
            node: The import statement.
            item: The imported name.
            intended_tool: The tool that is imported, ``mail`` in the example.
        """
        variable = _bound_name(item)
        is_own_name = item.asname is None and intended_tool.connection == variable
        if is_own_name and not intended_tool.is_action:  # ``import mail``: nothing is to do
            return []
        target = ast.Name(id=variable, ctx=ast.Store(), **position_of(node))
        value = self._tool_node(node, intended_tool)
        return [ast.Assign(targets=[target], value=value, **position_of(node))]

    def _imported_tool(
        self, node: ast.Import | ast.ImportFrom, item: ast.alias
    ) -> _ToolName | None:
        """Return the tool that a script imports, if any.

        The statement ``import word`` cannot import an action.
        """
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        connection = module.rpartition(".")[2]  # such as ``mail`` in ``tools.mail``
        if connection and item.name in self.initial_names.tools.get(connection, ()):
            return _ToolName(connection, item.name)
        # The module is not a connection, or has no such action: go by the imported name
        # alone, which may be another spelling of a tool's name.
        intended_tool = self._tool_by_spelling.get(normalized_name(item.name))
        is_action = intended_tool is not None and intended_tool.is_action
        if is_action and isinstance(node, ast.Import):
            return None
        return intended_tool

    def _is_used(self, item: ast.alias) -> bool:
        """Return True if the script reads a name that an import binds.

        For ``import *``, return True if the script reads any unknown name.
        """
        if item.name == "*":
            return bool(self._attributes_by_unknown_name())
        return self._is_read(_bound_name(item))

    def _is_read(self, word: str) -> bool:
        """Return True if the rewritten script still reads a name, such as ``tools``.

        A read in ``tools.shop`` does not count, because the rewriting replaces ``tools.shop`` by
        the tool itself.
        """
        replaced_ids: set[int] = set()
        for place, _ in self.syntax.attributes:
            if normalized_name(place.node.attr) in self._tool_by_spelling:
                replaced_ids.add(id(place.node.value))
        reads = [place.node for place, _ in self.syntax.loads if place.node.id == word]
        return any(id(read) not in replaced_ids for read in reads)


def _has_only_keywords(node: ast.AST) -> bool:
    """Return True for a call with only keyword arguments, such as ``Order(id=1)``."""
    return isinstance(node, ast.Call) and bool(node.keywords) and not node.args


def _bound_name(item: ast.alias) -> str:
    """Return the name that an import binds, such as ``os`` for ``import os.path``."""
    return item.asname or item.name.partition(".")[0]


def _names_in_annotations(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Yield each name in a type annotation, with the attribute of the name, if any."""
    annotations: list[ast.expr | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                annotations.append(annotation)
            case ast.FunctionDef(returns=annotation) | ast.AsyncFunctionDef(returns=annotation):
                annotations.append(annotation)
            case _:
                pass
    pending_nodes: list[ast.AST] = [node for node in annotations if node is not None]
    while pending_nodes:
        match pending_nodes.pop():
            case ast.Attribute(value=ast.Name(id=word), attr=attribute_name):
                yield word, attribute_name
            case ast.Name(id=word):
                yield word, None
            case node:
                pending_nodes.extend(ast.iter_child_nodes(node))


def tool_of_item(node: ast.expr) -> str:
    """Return ``mail`` for the expression ``TOOLS["mail"]``; empty for any other expression."""
    match node:
        case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(tool_name))):
            return tool_name if table == TOOLS else ""
        case _:
            return ""


def _must_come_first(node: ast.stmt) -> bool:
    """Return True for a docstring or ``__future__`` import, before which no import may stand."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.ImportFrom(module="__future__"):
            return True
        case _:
            return False


def _only_item(items: Iterator[str]) -> str | None:
    all_items = list(items)
    return all_items[0] if len(all_items) == 1 else None


def _tools_by_spelling(tools: Mapping[str, Sequence[str]]) -> dict[str, _ToolName]:
    """Return a mapping from each spelling to the tool that the spelling means.

    The spellings are normalised by :func:`normalized_name`; ambiguous ones are left out. Singular
    and plural of a connection's name are equal, as in ``worker_call`` for ``workers.call``.

    Args:
        tools: A mapping from the name of each connection or plain tool to its action names; a plain
            tool has none.
    """
    tools_by_spelling: defaultdict[str, set[_ToolName]] = defaultdict(set)
    for spelling, intended_tool in _spellings(tools):
        tools_by_spelling[normalized_name(spelling)].add(intended_tool)
    return {
        spelling: intended_tools.pop()
        for spelling, intended_tools in tools_by_spelling.items()
        if len(intended_tools) == 1
    }


def _spellings(tools: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, _ToolName]]:
    """Yield the spellings of connections, plain tools and actions, each with its tool."""
    normalized_tool_names = set(map(normalized_name, tools))
    for tool_name, action_names in tools.items():
        yield tool_name, _ToolName(tool_name, "")
        # The singular of a plural, or the plural of a singular.
        other_form = tool_name[:-1] if tool_name.endswith("s") else tool_name + "s"
        for action_name in action_names:
            action = _ToolName(tool_name, action_name)
            yield tool_name + action_name, action
            yield other_form + action_name, action
            # The name of an action alone means the action, unless a connection or a plain tool has
            # the same name.
            if normalized_name(action_name) not in normalized_tool_names:
                yield action_name, action
