"""Names that a script binds, for each kind of syntax that gives a name a value."""

import ast

import pytest

from delf.bindings import name_bound_by

BOUND = {
    "a, (b, *c) = d": "a b c",
    "a.b = c[d] = e": "",
    "a += b": "a",
    "a: int = b": "a",
    "(a := b)": "a",
    "for a in b: c": "a",
    "[a for a, b in c]": "a b",
    "with a as b, c as (d, e): f": "b d e",
    "def a(b, /, c, *d, e, **f): g": "a b c d e f",
    "async def a(b=c): d": "a b",
    "lambda a, b=c: d": "a b",
    "class A(B): c": "A",
    "import a, b.c, d.e as f": "a b f",
    "from a import b, c as d": "b d",
    "try: a\nexcept B as c: d\nexcept E: f": "c",
    "match a:\n case [b, *c] | {'d': e, **f} | G(h=i) as j: k\n case _: l": "b c e f i j",
    "del a": "",
    "global a, b": "",
}


@pytest.mark.parametrize("code", BOUND)
def test_name_bound_by_each_kind_of_syntax_is_found(code):
    names = [name for node in ast.walk(ast.parse(code)) if (name := name_bound_by(node))]
    assert sorted(names) == sorted(BOUND[code].split())
