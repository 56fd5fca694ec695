import json
import time
import warnings

import pytest

from delf.messages import ModelReply, ToolCall
from delf_strategy_codegen import python as codeblock
from delf_strategy_codegen.blocks import blocks_of
from delf_strategy_codegen.extract import find_script, read_reply
from delf_strategy_codegen.python import parse_script

from .answers import ANSWERS, SCRIPT, fenced


@pytest.mark.parametrize("name", ANSWERS)
def test_reader_finds_the_script_in_an_answer(name):
    answer, expected = ANSWERS[name]
    assert find_script(answer).code == expected


@pytest.mark.parametrize("space", ["", " ", "\u00a0", "\u3000"])
def test_language_of_a_block_may_follow_any_space(space):
    answer = f"```python\nx = 1\n```{space}python\ny = 2\n```"
    assert [block.code for block in blocks_of(answer)] == ["x = 1", "y = 2"]


def test_parsing_a_script_emits_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_script("x = '\\d' is 5") is not None


@pytest.mark.parametrize("code", ["x = = 1", "\0", "(" * 50_000, "-" * 50_000 + "1", "[" * 300])
def test_non_python_has_no_tree(code):
    assert parse_script(code) is None
    find_script(fenced(code))


HUGE = {
    "a long script": fenced("\n".join(f"x{i} = await f({i})" for i in range(10_000))),
    "a long script with a syntax error": fenced("x = = 1\n" + "print(1)\n" * 25_000),
    "one long line": fenced("x = '" + "a" * 200_000 + "'"),
    "prose": "This is a sentence, and it is long. " * 6_000,
    "lines of prose": "for a moment: this looks like code (but is not).\n" * 4_000,
    "a block that never ends well": "try:\n" + "    f()\n" * 20_000 + "and so on.",
    "fences only": "```\n" * 50_000,
    "labelled fences only": "```python\n" * 20_000,
    "fences in an open string": '```python\nx = """\n' + "```\n" * 50_000,
    "blocks of code": (fenced("f(1)") + "\n") * 10_000,
    "blocks of broken code": (fenced("x = = 1") + "\n") * 8_000,
    "open thinking": "<think>" * 30_000,
    "closed thinking": "<think></think>" * 14_000,
    "code tags": "<code>" * 30_000,
    "open tags of a parameter": "<parameter name=code>" * 20_000,
    "open tags of an argument": "<arg_key>code</arg_key><arg_value>" * 12_000,
    "fences in one line": "```x" * 50_000,
    "a long row of marks in a line": "```x" + "`" * 100_000 + "y",
    "braces": '{"a":' * 40_000,
    "backticks": "`" * 200_000,
    "white space": " " * 200_000,
    "empty lines": "\n" * 200_000,
    "alternatives": (fenced("\n".join(f"x{i} = {i}" for i in range(3_000))) + "\n") * 6,
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.slow
def test_huge_answers_are_read_quickly(name, monkeypatch):
    parsed = []
    original = codeblock.tree_or_syntax_error

    def counting(code):
        parsed.append(len(code))
        return original(code)

    monkeypatch.setattr(codeblock, "tree_or_syntax_error", counting)
    started = time.process_time()
    find_script(HUGE[name])
    assert sum(parsed) < 100 * len(HUGE[name])
    assert time.process_time() - started < 20


def test_reader_finds_the_script_before_long_text():
    assert find_script(fenced(SCRIPT) + "\nand so on " * 20_000).code == SCRIPT


@pytest.mark.parametrize(
    "arguments",
    [
        '{"code": "x = 1\\nprint(x)"}',
        '{"code": "x = 1\nprint(x)"}',
        '{"code": "```python\\nx = 1\\nprint(x)\\n```"}',
        '{"input": {"script": "x = 1\\nprint(x)"}}',
        '"x = 1\\nprint(x)"',
        "x = 1\nprint(x)",
    ],
)
def test_script_is_the_argument_of_a_call(arguments):
    call = ToolCall(id="1", name="run", arguments=arguments)
    assert (
        read_reply(ModelReply(text="Here it is.", model="m", calls=(call,))).code
        == "x = 1\nprint(x)"
    )


def test_script_argument_may_contain_tags_and_fences():
    code = "print('<code>no</code>')\nprint('```')"
    call = ToolCall(id="1", name="run", arguments=json.dumps({"code": code}))
    assert read_reply(ModelReply(text="", model="m", calls=(call,))).code == code


@pytest.mark.parametrize("arguments", ['{"code": "x = 1\\nprint(', "{}", '{"a": 1}', "null", "[1]"])
def test_call_without_a_script_leaves_the_text(arguments):
    call = ToolCall(id="1", name="other", arguments=arguments)
    reply = ModelReply(text="```python\nprint(1)\n```", model="m", calls=(call,))
    assert read_reply(reply).code == "print(1)"
