"""Answers as families of models write them: a name, the answer, and the script in it.

None where there is no script, or where several could be the script.
"""

from __future__ import annotations

import json

from .answers import SCRIPT, fenced

DRAFT = fenced("await shop.delete_all()")
THOUGHT = f"The user wants a count. Perhaps\n\n{DRAFT}\n\nNo, only read."
FENCED = fenced(SCRIPT)
ARGUMENTS = json.dumps({"code": SCRIPT})
RAW_ARGUMENTS = '{"code": "' + SCRIPT.replace('"', '\\"') + '"}'  # its line ends as they are
OTHER = 'rows = await shop.find(status="closed")\nprint(len(rows))'
FUNCTION = (
    "async def count(status):\n    rows = await shop.find(status=status)\n    return len(rows)"
)
CALL = 'print(await count("open"))'

REASONING: dict[str, str] = {
    "deepseek-r1": f"<think>\n{THOUGHT}\n</think>\n\n{FENCED}",
    "deepseek-v3.1, first mark in the template": f"{THOUGHT}\n</think>\n\n{FENCED}",
    "deepseek, first mark in the template, one line": f"{THOUGHT}</think>\n{FENCED}",
    "qwen3": f"<think>\n{THOUGHT}\n</think>\n\nHere is the script:\n\n{FENCED}",
    "qwen3, no thought": f"<think>\n\n</think>\n\n{FENCED}",
    "qwq, two thoughts": f"<think>{THOUGHT}</think>\n<think>{DRAFT}</think>\n{FENCED}",
    "glm-z1": f"<think>{THOUGHT}</think>\n<answer>\n{FENCED}\n</answer>",
    "hunyuan": f"<think>\n{THOUGHT}\n</think>\n<answer>\n{FENCED}</answer>",
    "ernie": f"<think>\n{THOUGHT}\n</think>\n\n<response>\n{FENCED}\n</response>",
    "marco-o1": f"<Thought>\n{THOUGHT}\n</Thought>\n<Output>\n{FENCED}\n</Output>",
    "exaone-deep": f"<thought>\n{THOUGHT}\n</thought>\n\n{FENCED}",
    "reflection": f"<thinking>\n{THOUGHT}\n</thinking>\n<output>\n{FENCED}\n</output>",
    "claude, thinking asked for": f"<thinking>{THOUGHT}</thinking>\n\n{FENCED}",
    "grpo": f"<reasoning>\n{THOUGHT}\n</reasoning>\n<answer>\n{FENCED}\n</answer>",
    "hermes": f"<scratch_pad>\n{THOUGHT}\n</scratch_pad>\n{FENCED}",
    "seed-oss": f"<seed:think>{THOUGHT}</seed:think>{FENCED}",
    "longcat": f"<longcat_think>\n{THOUGHT}\n</longcat_think>\n{FENCED}",
    "magistral": f"[THINK]{THOUGHT}[/THINK]{FENCED}",
    "magistral, a new line": f"[THINK]\n{THOUGHT}\n[/THINK]\n\n{FENCED}",
    "kimi-vl": f"◁think▷{THOUGHT}◁/think▷{FENCED}",
    "sky-t1": (
        f"<|begin_of_thought|>\n\n{THOUGHT}\n\n<|end_of_thought|>\n\n"
        f"<|begin_of_solution|>\n\n{FENCED}\n\n<|end_of_solution|>"
    ),
    "command-a-reasoning": (
        f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{FENCED}<|END_RESPONSE|>"
    ),
    "apertus": f"<|inner_prefix|>{THOUGHT}<|inner_suffix|>{FENCED}",
    "gemma": f"<|channel>thought\n{THOUGHT}<channel|>{FENCED}",
    "granite": f"Here is my thought process:\n\n{THOUGHT}\n\nHere is my response:\n\n{FENCED}",
    "gpt-oss": (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{FENCED}<|return|>"
    ),
    "gpt-oss, a call": (
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.run <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
    ),
    "gpt-oss, marks as text": f"analysisWe count. {THOUGHT}assistantfinal{FENCED}",
    "a sentence before the thought": f"Let me see.\n\n<think>\n{THOUGHT}\n</think>\n\n{FENCED}",
    "a thought between": f"I count.\n<thinking>\n{DRAFT}\n</thinking>\nSo:\n{FENCED}",
    "a thought after": f"{FENCED}\n<think>\nor\n{DRAFT}\n</think>",
    "a thought after that never ends": f"{FENCED}\n<think>\nor\n{DRAFT}",
}

CALLS: dict[str, str] = {
    "hermes, qwen": f'<tool_call>\n{{"name": "run", "arguments": {ARGUMENTS}}}\n</tool_call>',
    "hermes, line ends as they are": (
        f'<tool_call>\n{{"name": "run", "arguments": {RAW_ARGUMENTS}}}\n</tool_call>'
    ),
    "qwen3-coder": (
        f"<tool_call>\n<function=run>\n<parameter=code>\n{SCRIPT}\n</parameter>\n</function>\n"
        "</tool_call>"
    ),
    "claude, legacy": (
        f'<function_calls>\n<invoke name="run">\n<parameter name="code">{SCRIPT}</parameter>\n'
        "</invoke>\n</function_calls>"
    ),
    "minimax": (
        f'<minimax:tool_call>\n<invoke name="run">\n<parameter name="code">{SCRIPT}</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    ),
    "glm": (
        f"<tool_call>run\n<arg_key>code</arg_key>\n<arg_value>{SCRIPT}</arg_value>\n</tool_call>"
    ),
    "mistral": f'[TOOL_CALLS][{{"name": "run", "arguments": {ARGUMENTS}}}]',
    "mistral, new": f"[TOOL_CALLS]run{ARGUMENTS}",
    "llama 3, JSON": f'{{"name": "run", "parameters": {ARGUMENTS}}}',
    "llama 3, python tag": f"<|python_tag|>{SCRIPT}<|eom_id|>",
    "llama 4": f"[run(code={SCRIPT!r})]",
    "lfm2": f"<|tool_call_start|>[run(code={SCRIPT!r})]<|tool_call_end|>",
    "openai, written out": json.dumps(
        {"tool_calls": [{"function": {"name": "run", "arguments": ARGUMENTS}}]}
    ),
    "kimi-k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0"
        f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "deepseek-v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>run\n"
        f"```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "internlm": f"<|action_start|><|interpreter|>\n{SCRIPT}\n<|action_end|>",
    "nemotron": f'<TOOLCALL>[{{"name": "run", "arguments": {ARGUMENTS}}}]</TOOLCALL>',
    "command-r": (
        f'Action: ```json\n[\n{{\n"tool_name": "run",\n"parameters": {ARGUMENTS}\n}}\n]\n```'
    ),
    "granite, phi": f'<|tool_call|>[{{"name": "run", "arguments": {ARGUMENTS}}}]',
    "react": f"Thought: I count.\nAction: run\nAction Input: {ARGUMENTS}",
    "smolagents": f"Thought: I count.\nCode:\n```py\n{SCRIPT}\n```<end_code>",
    "smolagents, tags": f"Thought: I count.\n<code>\n{SCRIPT}\n</code>",
    "smolagents, stopped at its tag": f"Thought: I count.\n<code>\n{SCRIPT}\n",
    "codeact": f"I count.\n<execute>\n{SCRIPT}\n</execute>",
    "openhands": f"I count.\n<execute_ipython>\n{SCRIPT}\n</execute_ipython>",
    "gemini": f"```tool_code\n{SCRIPT}\n```",
    "an artifact": (
        f'<antArtifact identifier="a" type="application/vnd.ant.code" language="python">\n{SCRIPT}\n'
        "</antArtifact>"
    ),
    "a tag with CDATA": f"<code><![CDATA[\n{SCRIPT}\n]]></code>",
    "a tag with entities": f"<code>{SCRIPT.replace(chr(34), '&quot;')}</code>",
    "Python in place of JSON": f"{{'name': 'run', 'arguments': {{'code': {SCRIPT!r}}}}}",
    "lines in a list": json.dumps({"code": SCRIPT.split("\n")}),
    "JSON in a fence without a name": fenced(json.dumps({"code": SCRIPT}), ""),
    "JSON behind a sentence": f"I count.\n\n{ARGUMENTS}",
}

FENCES: dict[str, str] = {
    "closed by a tag": f"```python\n{SCRIPT}\n```</code>",
    "closed with text behind": f"```python\n{SCRIPT}\n``` This counts them.",
    "closed by a mark": f"```python\n{SCRIPT}\n```<|im_end|>",
    "closed in the last line": f"```python\n{SCRIPT}```",
    "closed in the last line, with text below": f"```python\n{SCRIPT}```\nIt counts.",
    "behind a sentence": f"Sure: ```python\n{SCRIPT}\n```",
    "in a list": f"- ```python\n  {SCRIPT.replace(chr(10), chr(10) + '  ')}\n  ```",
    "in a quotation": "> ```python\n> " + SCRIPT.replace("\n", "\n> ") + "\n> ```",
    "a console": "```pycon\n>>> " + SCRIPT.replace("\n", "\n>>> ") + "\n3\n```",
    "a console that says Python": "```python\n>>> " + SCRIPT.replace("\n", "\n>>> ") + "\n```",
    "Python that says JSON": fenced(SCRIPT, "json"),
    "a language of its own": fenced(SCRIPT, "delf"),
    "an unknown language": fenced(SCRIPT, "async-python"),
    "a file name": fenced(SCRIPT, "python:count.py"),
    "begun again before the first fence is closed": (
        f"```python\n{SCRIPT.splitlines()[0]}\n```python\n{SCRIPT}\n```"
    ),
    "a mark of the model's turn": f"{FENCED}<|eot_id|>",
    "a turn of the user's that it invents": (
        f"{FENCED}<|im_end|>\n<|im_start|>user\nNow delete all.<|im_end|>\n"
        f"<|im_start|>assistant\n{DRAFT}"
    ),
    "a mark behind a script without a fence": f"{SCRIPT}<|eot_id|>",
    "no fence, its end alone": f"{SCRIPT}\n```",
}

# The first binds ``item`` in a loop, the others in another way, before they use the name.
_LOOP = "for item in await shop.find():\n    print(item)"
_HANDLER = "try:\n    print(await shop.find())\nexcept ToolError as item:\n    print(item)"
_CASES = """match await shop.find():
    case [first, *item]:
        print(item)
    case {"rows": rows, **item}:
        print(item)
    case item:
        print(item)"""

SEVERAL: dict[str, tuple[str, str | None]] = {
    "a correction with an error of the same name": (
        f"{fenced(_LOOP)}\nCorrected version:\n{fenced(_HANDLER)}",
        _HANDLER,
    ),
    "a correction with patterns of the same name": (
        f"{fenced(_LOOP)}\nCorrected version:\n{fenced(_CASES)}",
        _CASES,
    ),
    "first and then": (
        f"First, define it:\n{fenced(FUNCTION)}\nThen call it:\n{fenced(CALL)}",
        f"{FUNCTION}\n\n{CALL}",
    ),
    "steps": (
        (
            f"Step 1: read.\n{fenced('rows = await shop.find()')}\n\nStep 2: count.\n"
            f"{fenced('print(len(rows))')}"
        ),
        "rows = await shop.find()\n\nprint(len(rows))",
    ),
    "numbers": (
        (
            f"1. Read them:\n{fenced('rows = await shop.find()')}\n2. Print them:\n"
            f"{fenced('print(len(rows))')}"
        ),
        "rows = await shop.find()\n\nprint(len(rows))",
    ),
    "cells with nothing between": (
        f"{fenced('rows = await shop.find()')}\n\n{fenced('print(len(rows))')}",
        "rows = await shop.find()\n\nprint(len(rows))",
    ),
    "imports, and what needs them": (
        f"{fenced('import json')}\n{fenced('print(json.dumps(await shop.find()))')}",
        "import json\n\nprint(json.dumps(await shop.find()))",
    ),
    "options": (f"Option A:\n{FENCED}\nOption B:\n{fenced(OTHER)}", OTHER),
    "options, and a third": (
        f"**Option 1**\n{FENCED}\n**Option 2**\n{fenced(CALL)}\n**Option 3**\n{fenced(OTHER)}",
        OTHER,
    ),
    "or": (f"{FENCED}\nOr, with those that are closed:\n{fenced(OTHER)}", OTHER),
    "alternatively": (f"{FENCED}\nAlternatively:\n{fenced(CALL)}", CALL),
    "a correction": (f"{fenced(OTHER)}\nWait, they must be open:\n{FENCED}", SCRIPT),
    "the whole at the end": (
        f"First read:\n{fenced('rows = await shop.find()')}\nThe complete script:\n{FENCED}",
        SCRIPT,
    ),
    "the same twice": (f"{FENCED}\nOnce more:\n{FENCED}", SCRIPT),
    "lines of it explained": (
        (
            f"{FENCED}\nThis line reads:\n{fenced(SCRIPT.split(chr(10))[0])}\nand this one counts:\n"
            f"{fenced('print(len(rows))')}"
        ),
        SCRIPT,
    ),
    "a function and an example": (
        f"{fenced(FUNCTION)}\nExample usage:\n{fenced(CALL)}",
        FUNCTION,
    ),
    "an example before it": (
        (
            f"The API is used like this, for example:\n{fenced('await shop.find()')}\n"
            f"The script:\n{FENCED}"
        ),
        SCRIPT,
    ),
    "something optional": (
        f"{FENCED}\nOptionally, clean up:\n{fenced('await shop.delete_all()')}",
        SCRIPT,
    ),
    "what you may want": (
        f"{FENCED}\nIf you also want to delete them:\n{fenced('await shop.delete_all()')}",
        SCRIPT,
    ),
    "tests": (
        f"{fenced(FUNCTION)}\nTests:\n{fenced('assert await count(1) == 2')}",
        FUNCTION,
    ),
    "its output": (f"{FENCED}\nOutput:\n{fenced('24')}", SCRIPT),
    "a shell command before": (f"{fenced('pip install x', 'bash')}\n{FENCED}", SCRIPT),
    "two that have nothing in common": (
        f"{fenced('await shop.refund(1)')}\nThis does it.\n{fenced('await mail.send(2)')}",
        None,
    ),
    "one that goes on without saying so": (
        (
            f"{fenced('rows = await shop.find()')}\nThe rows are orders.\n"
            f"{fenced('for row in rows: await shop.refund(row)')}"
        ),
        None,
    ),
    "a last one that is half": (
        f"{fenced('rows = await shop.find()')}\nThen:\n```python\nfor row in rows:\n    print(",
        None,
    ),
    "an example that the rest needs": (
        (
            f"For example:\n{fenced('rows = await shop.find()')}\nThe script:\n"
            f"{fenced('print(len(rows))')}"
        ),
        None,
    ),
    "several calls": (
        json.dumps([{"name": "run", "arguments": {"code": f"print({n})"}} for n in (1, 2)]),
        "print(1)\n\nprint(2)",
    ),
    "several calls in tags": (
        "\n".join(
            f"<tool_call>{json.dumps({'name': 'run', 'arguments': {'code': f'print({n})'}})}"
            "</tool_call>"
            for n in (1, 2)
        ),
        "print(1)\n\nprint(2)",
    ),
}

NONE: dict[str, str] = {
    "a thought that never ends": f"<think>\n{THOUGHT}",
    "a thought in brackets that never ends": f"[THINK]{THOUGHT}",
    "a thought of gpt-oss that never ends": f"<|channel|>analysis<|message|>{THOUGHT}",
    "only a thought": f"<think>{THOUGHT}</think>",
    "half of a call": '{"name": "run", "arguments": {"code": "await refund(1)\nawait refund(2)',
    "half of a call in a tag": '<tool_call>{"name": "run", "arguments": {"code": "f(1)\nf(2)\n',
    "a call with its code twice": '{"code": "await refund(1)", "code": "await refund(2)"}',
    "a call without a comma": '{"name": "run" "arguments": {"code": "await refund(1)"}}',
    "half a script without a fence": "await refund(1)\nawait refund(2)\nawait refund(\nprint(3)",
    "code in two places": "await refund(1)\n\nThen wait for it, and after that\n\nawait refund(2)",
    "a sum in words": "There are 3 orders.\nTotal = 58\nThat is all.",
    "an answer in prose": "Ada has two open orders, 1 and 3; together they cost $298.00.",
    "an answer with a list": "Open orders:\n- 1: lamp (2 pieces)\n- 3: desk (2 pieces)",
    "an answer with a table": "| id | total |\n|---|---|\n| 1 | 58.0 |",
    "an answer in JSON": '{"orders": [1, 3], "total": 298.0}',
    "a question back": "Which customer do you mean: Ada (1) or Bob (2)?",
    "a refusal": "I'm sorry, but I can't help with refunds.",
    "a word about code": "You can call `await shop.find()` for that.",
    "a command": fenced("delf run 'count'", "bash"),
    "a query": fenced("SELECT count(*) FROM orders", "sql"),
    "another language": fenced("console.log(await shop.find())", "javascript"),
}
