"""Tests that rewriting leaves scripts unchanged that need none, and takes linear time."""

from __future__ import annotations

import ast
import sys

import pytest

from delf_sandbox.guest import nodes
from delf_sandbox.guest.names import InitialNames
from delf_sandbox.guest.rewrite import Rewriting
from delf_sandbox.guest.scopes import ScriptSyntax
from support.corpora import CORPUS, entries, need_corpora

TOOLS = InitialNames(
    {"sql": ["query"], "gmail": ["read", "send"], "add": []},
    write_actions={"gmail.send"},
    can_import=lambda _: True,
)
_SAME = {
    nodes.AS_AWAITABLE,
    nodes.RESULT_OF_COROUTINE,
    nodes.ASYNC_VARIANT_OF,
    nodes.ASYNC_ITER,
    nodes.ASYNC_WITH,
}
"""Functions that give back what they are given where that is awaited already."""


class _WithoutMarks(ast.NodeTransformer):
    """Removes the marks of calls, but no ``await`` around them."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_mark = isinstance(node.func, ast.Name) and node.func.id in _SAME
        return node.args[0] if is_mark else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return node.value if node.attr == nodes.ASYNC_VARIANT else node


def rewritten(source: str) -> ast.Module:
    """Return a script's syntax tree after rewriting, without marks."""
    tree = ast.parse(source)
    Rewriting(tree, TOOLS)
    return _WithoutMarks().visit(tree)


@pytest.mark.parametrize(
    ("source", "attribute"),
    [
        ("sql.Query('select 1')", "query"),
        ("def read(sql):\n    return sql.Query('select 1')", "Query"),
        ("sql = connect()\nsql.Query('select 1')", "Query"),
    ],
)
def test_other_spelling_is_corrected_only_for_the_connection(source: str, attribute: str):
    (spelling,) = (
        node.attr
        for node in ast.walk(rewritten(source))
        if isinstance(node, ast.Attribute) and node.attr.lower() == "query"
    )
    assert spelling == attribute


def test_already_awaited_calls_are_not_rewritten():
    need_corpora()
    scripts = {
        entry["file"]: (CORPUS / "benign" / entry["file"]).read_text("utf-8")
        for entry in entries("benign")
    }
    changed = [
        name
        for name, source in scripts.items()
        if ast.dump(rewritten(source)) != ast.dump(ast.parse(source))
    ]
    assert changed == []


@pytest.mark.parametrize(
    "source", ["print(await (add(1) + add(2)))", "x = add(1)\ny = add(2)\nprint(await (x + y))"]
)
def test_operands_of_an_awaited_sum_are_awaited_in_their_order(source: str):
    script = ast.unparse(rewritten(source))
    assert script == source.replace("add(", "await add(")
    assert "await add" not in ast.unparse(rewritten("print(await ([add(1)] + [add(2)]))"))


@pytest.mark.parametrize(
    "source",
    [
        "def first():\n    return first()[0]\nprint(await first())",
        "async def walk(calls):\n    await calls[0]\n    await walk(calls[0])\nawait walk([add(1)])",
        "async def walk(calls):\n    await calls[0]\n    await walk([calls])\nawait walk([add(1)])",
        "calls = [add(1)]\nwhile calls:\n    calls = calls[0]\n    await calls",
        "calls = []\ncalls.append(calls)\nawait calls[0]",
    ],
)
def test_awaited_values_that_contain_themselves_are_rewritten(source: str):
    assert ast.unparse(rewritten(source)) == source


def test_global_statement_of_the_module_does_not_hide_a_tool():
    assert ast.unparse(rewritten("global add\nprint(add(1))")) == (
        "global add\nprint(await add(1))"
    )


def test_nonlocal_name_of_a_method_is_bound_in_the_function_around_the_class():
    syntax = ScriptSyntax(
        ast.parse(
            "def start():\n    job = None\n    class Job:\n        def begin(self):\n"
            "            nonlocal job\n            job = add(1)\n    return job"
        )
    )
    start, begin = syntax.functions
    assert begin.owner("job") is begin.find("job") is start


@pytest.mark.parametrize(
    "annotation", ["collections.Counter", "collections.abc.Iterable", "list[collections.abc.Set]"]
)
def test_module_in_a_type_annotation_is_imported(annotation: str):
    source = f"def count(rows: {annotation}):\n    return len(rows)"
    assert ast.unparse(rewritten(source)).startswith("import collections\n")


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nstep = [asyncio.sleep]\nstep[0](1)",
        "from asyncio import sleep\nstep = [sleep]\nstep[0](1)",
        "from asyncio import sleep as pause\nstep = [pause]\nstep[0](1)",
    ],
)
def test_result_of_an_asyncio_function_without_a_name_is_awaited(source: str):
    tree = ast.parse(source)
    Rewriting(tree, TOOLS)
    assert ast.unparse(tree).endswith(f"{nodes.RESULT_OF_COROUTINE}(step[0](1))")


def _steps(source: str) -> int:
    """Count the function calls that rewriting a script takes."""
    tree, count = ast.parse(source), 0

    def note(_frame: object, event: str, _given: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        Rewriting(tree, TOOLS)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "source",
    [
        "send = send if quiet else gmail.send\nsend(1)",
        "send = partial(send, gmail.send)\nsend(1)",
        "mail = mail() if quiet else gmail\nmail.read()",
        "a = b if quiet else gmail.send\nb = a if quiet else gmail.send\na(1)",
    ],
)
def test_alias_of_itself_is_followed_once(source: str):
    tree = ast.parse(f"from functools import partial\n{source}")
    assert Rewriting(tree, TOOLS).rebound_names == []


@pytest.mark.parametrize("word", ["global", "nonlocal"])
def test_declaration_after_a_function_is_left_to_the_compiler(word: str):
    tree = ast.parse(f"def outer():\n    def step(): pass\n    {word} step\n    step()")
    assert Rewriting(tree, TOOLS).rebound_names == []


@pytest.mark.timeout(10)
def test_alias_of_itself_used_as_a_value_is_refused():
    tree = ast.parse("if (send := send if quiet else gmail.send) == 1: send(1)")
    with pytest.raises(nodes.ToolMisuseError, match="is named here and not called"):
        Rewriting(tree, TOOLS)


@pytest.mark.parametrize(
    "part",
    [
        "rows{n} = sql.query(f'select {n}')\nprint(len(rows{n}), rows{n}[0]['id'])\n",
        "async def step{n}(given):\n    for one in given:\n        await sql.query(one)\n",
        "def step{n}(given):\n    return [sql.query(one) for one in given]\n\nstep{n}([])\n",
        "calls{n} = [add(1, k) for k in range({n})]\nprint(await asyncio.gather(*calls{n}))\n",
    ],
)
def test_rewriting_takes_linear_time(part: str):
    short, long = (
        _steps("".join(part.replace("{n}", str(n)) for n in range(count))) for count in (25, 100)
    )
    assert long < 5 * short
