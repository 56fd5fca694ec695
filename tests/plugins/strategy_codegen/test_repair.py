"""The text of a script that is not Python is mended only where it is clear what it would be."""

import ast

import pytest

from delf_strategy_codegen.repair import repair_code

MENDED = {
    "typographic quotes": ("print(“a”, ‘b’)", "ab"),
    "an apostrophe within them": ("print(“It’s”)", "It’s"),
    "an empty string at the end": ("print(1)\nx = “”", "1"),
    "a name like a prefix before them": ("b = 1\nx = b\n“a text”\nprint(x)", "1"),
    "an invisible space after the prefix": ("a = 1\nprint(f\u200b“{a}”)", "1"),
    "quotes within them": ('print(“say "hi"”)', 'say "hi"'),
    "quotes within them in a raw string": ('print(r“a "b" \\d”)', 'a "b" \\d'),
    "both quotes in a raw string": ('print(r“it\'s "so" to me”)', 'it\'s "so" to me'),
    "a quote at the end of a raw string": ('print(r“it\'s "so"”)', 'it\'s "so"'),
    "all quotes in a raw string": ("print(r“'''a\"”)", "'''a\\\""),
    "an escaped quote in a raw string": ('print(r‘“\\"\'”’, r“\\"”)', '“\\"\'”\\"'),
    "quotes in a raw f-string": (
        "d = {'a': 1}\nprint(rf“{d['a']} \"x\" {d[\"a\"]}\\d”)",
        '1 "x" 1\\d',
    ),
    "quotes in long quotes of a raw string": ('print(r“““a "b" c”””)', 'a "b" c'),
    "signs": ("print(1\u00a0−\u00a02, 3 ≥ 2, 2 × 3)", "-1True6"),
    "prompts": (">>> x = 1\n>>> if x:\n...     print(x)\n...\n1", "1"),
    "code before the prompts": ("x = 1\ny = 2\n>>> print(x + y)\n3", "3"),
    "an installation": ("!pip install x\nprint(1)", "1"),
    "an installation in a block": ("if 1:\n    %pip install x\nprint(1)", "1"),
    "the same quotes": ('d = {\'a\': 1}\nprint(f"{d["a"]}")', "1"),
    "the same quotes side by side": ('d = {\'a\': 1}\nprint(f"{d["a"]}" \'b\' f"{2}")', "1b2"),
    "the same quotes, nested": ('d = {\'a\': 1}\nprint(f"<{f"{d["a"]:>{2 + 1}}"}>")', "<  1>"),
    "a backslash": ("print(f\"{'-'.join(['a', 'b'])}{\"\\t\".join('cd')}\")", "a-bc\td"),
    "braces and conversions": ("d = {'a': 'x'}\nprint(f\"{{{d[\"a\"]!r}}}\")", "{'x'}"),
    "what shows itself": ('d = {\'a\': 1}\nprint(f"{d["a"] = }")', 'd["a"] = 1'),
    "several lines": ('print(f"{\n1 +\n1}")', "2"),
}


@pytest.mark.parametrize("name", MENDED)
def test_broken_script_is_repaired(name):
    code, printed = MENDED[name]
    mended = repair_code(code)
    assert mended.count("\n") == code.count("\n")
    message = []
    exec(mended, {"print": lambda *parts: message.extend(map(str, parts))})
    assert "".join(message) == printed


@pytest.mark.parametrize(
    "code",
    ["print('“a” – ≥')", "x = 'It’s'  # “so”", "print(f'{1}')", "# >>> x\nprint(1)", ""],
)
def test_valid_code_is_unchanged(code):
    assert repair_code(code) is code


@pytest.mark.parametrize(
    "code",
    ["!rm -rf /", "SELECT 1 FROM a", "print(“a)", "print(‘It’s’)", "def f(:", "!ls\nprint(1)"],
)
def test_ambiguous_code_is_unchanged(code):
    assert repair_code(code) == code
    with pytest.raises(SyntaxError):
        ast.parse(repair_code(code))


def test_long_code_is_unchanged():
    code = "(" * 200_000 + "“"
    assert repair_code(code) is code
