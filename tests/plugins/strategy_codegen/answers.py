"""A corpus of models' answers: a name, the answer, and the script in it."""

from __future__ import annotations

SCRIPT = 'rows = await shop.find(status="open")\nprint(len(rows))'


def fenced(code: str, language: str = "python", marks: str = "```") -> str:
    return f"{marks}{language}\n{code}\n{marks}"


ANSWERS: dict[str, tuple[str, str | None]] = {
    # -- fences -------------------------------------------------------------------------
    "no fence": (SCRIPT, SCRIPT),
    "one fence": (fenced(SCRIPT), SCRIPT),
    "prose around": (f"Sure! Here it is:\n\n{fenced(SCRIPT)}\n\nIt counts the rows.", SCRIPT),
    "unlabelled fence": (fenced(SCRIPT, ""), SCRIPT),
    "tool_code": (fenced(SCRIPT, "tool_code"), SCRIPT),
    "py": (fenced(SCRIPT, "py"), SCRIPT),
    "Python, in capitals": (fenced(SCRIPT, "Python"), SCRIPT),
    "a label with more": (fenced(SCRIPT, 'python title="a.py"'), SCRIPT),
    "a space before the label": (fenced(SCRIPT, " python"), SCRIPT),
    "a label in braces": (fenced(SCRIPT, "{python}"), SCRIPT),
    "tildes": (fenced(SCRIPT, marks="~~~"), SCRIPT),
    "four backticks": (fenced(SCRIPT, marks="````"), SCRIPT),
    "unclosed": (f"Here:\n```python\n{SCRIPT}", SCRIPT),
    "unclosed, cut in the middle": ("```python\nx = 1\nprint(", "x = 1\nprint("),
    "trailing space after the fences": (f"```python  \n{SCRIPT}\n```  ", SCRIPT),
    "empty lines in the fence": (fenced(f"\n\n{SCRIPT}\n\n"), SCRIPT),
    "in a list": (
        "1. First:\n\n   ```python\n   x = 1\n   if x:\n       print(x)\n   ```\n2. Then done.",
        "x = 1\nif x:\n    print(x)",
    ),
    "in a list, with a string that is not indented": (
        '- ```python\n  t = """a\nb"""\n  print(t)\n  ```'.replace("- ```", "-\n  ```"),
        't = """a\nb"""\nprint(t)',
    ),
    "whole block indented": (fenced("    x = 1\n    print(x)"), "x = 1\nprint(x)"),
    "whole answer indented": ("    x = 1\n    print(x)\n", "x = 1\nprint(x)"),
    # -- several fences -----------------------------------------------------------------
    "two that belong together": (
        f"First:\n{fenced('rows = await shop.find()')}\nthen:\n{fenced('print(rows)')}",
        "rows = await shop.find()\n\nprint(rows)",
    ),
    "a second that goes on with the same name": (
        (
            f"{fenced('rows = await shop.find()')}\nand\n{fenced('rows = sorted(rows)')}\n"
            f"{fenced('rows += [1]')}\n{fenced('print([r for r in rows])')}"
        ),
        (
            "rows = await shop.find()\n\nrows = sorted(rows)\n\nrows += [1]\n\n"
            "print([r for r in rows])"
        ),
    ),
    "alternatives": (
        f"Option A:\n{fenced(SCRIPT)}\nOption B, better:\n"
        + fenced('rows = await shop.find(status="closed")\nprint(len(rows))'),
        'rows = await shop.find(status="closed")\nprint(len(rows))',
    ),
    "a corrected version": (
        fenced("def f():\n    return 1\n\nprint(f())")
        + "\nWait, that is wrong:\n"
        + fenced("def f():\n    return 2\n\nprint(f())"),
        "def f():\n    return 2\n\nprint(f())",
    ),
    "bash before": (f"{fenced('pip install pandas', 'bash')}\n{fenced(SCRIPT)}", SCRIPT),
    "output after": (f"{fenced(SCRIPT)}\nOutput:\n{fenced('24', 'text')}", SCRIPT),
    "unlabelled output after": (f"{fenced(SCRIPT)}\nOutput:\n{fenced('Total: five', '')}", SCRIPT),
    "unlabelled code and output": (
        f"{fenced(SCRIPT, '')}\nOutput:\n{fenced('Total: five', '')}",
        SCRIPT,
    ),
    "sql beside": (f"{fenced('SELECT 1', 'sql')}\n{fenced(SCRIPT)}", SCRIPT),
    "only bash": (fenced("pip install x", "bash"), None),
    "only an empty fence": (fenced(""), None),
    "a fence with a value": (fenced("6 * 7"), "6 * 7"),
    "a fence with nothing but a loop": (fenced("while True: pass"), "while True: pass"),
    "an unlabelled fence with a number": (fenced("42", ""), None),
    # -- fences in strings --------------------------------------------------------------
    "a fence in a string": (
        fenced('text = """\n```\ncode\n```\n"""\nprint(text)'),
        'text = """\n```\ncode\n```\n"""\nprint(text)',
    ),
    "a labelled fence in a string": (
        fenced("md = '''# Report\n```python\nx\n```\n'''\nprint(md)"),
        "md = '''# Report\n```python\nx\n```\n'''\nprint(md)",
    ),
    "a fence of four in a string": (
        fenced("md = '''\n````\nx\n````\n'''\nprint(md)"),
        "md = '''\n````\nx\n````\n'''\nprint(md)",
    ),
    "a fence in a string, in four backticks": (
        fenced("md = '''\n```\nx\n```\n'''\nprint(md)", marks="````"),
        "md = '''\n```\nx\n```\n'''\nprint(md)",
    ),
    "a fence in a string, without a fence around": (
        "md = '''\n```\nx()\n```\n'''\nprint(md)",
        "md = '''\n```\nx()\n```\n'''\nprint(md)",
    ),
    "a fence in a string, then prose with a fence": (
        fenced("md = '''\n```\n'''\nprint(md)") + "\nIt prints:\n" + fenced("x", "text"),
        "md = '''\n```\n'''\nprint(md)",
    ),
    "backticks in a line": (fenced("print('```')"), "print('```')"),
    # -- wrappers -----------------------------------------------------------------------
    "thinking": (f"<think>I could do\n{fenced('wrong()')}\n</think>\n{fenced(SCRIPT)}", SCRIPT),
    "thinking, in capitals": (f"<Thinking>hm</Thinking>{fenced(SCRIPT)}", SCRIPT),
    "thinking that was not opened": (
        f"so\n{fenced('wrong()')}\n</think>\n{fenced(SCRIPT)}",
        SCRIPT,
    ),
    "thinking that never ends": (f"<think>I could do\n{fenced('wrong()')}", None),
    "a think tag in a string": (fenced('print("<think>x</think>")'), 'print("<think>x</think>")'),
    "code tags": (f"<code>\n{SCRIPT}\n</code>", SCRIPT),
    "code tags in prose": (f"Here: <code>{SCRIPT}</code> and done.", SCRIPT),
    "code tags around a fence": (f"<code>\n{fenced(SCRIPT)}\n</code>", SCRIPT),
    "code tags in a string": ('print("<code>x</code>")', 'print("<code>x</code>")'),
    "JSON": ('{"code": "x = 1\\nprint(x)"}', "x = 1\nprint(x)"),
    "JSON in a fence": (fenced('{"thought": "…", "code": "print(1)"}', "json"), "print(1)"),
    "JSON with a fence inside": ('{"script": "```python\\nprint(1)\\n```"}', "print(1)"),
    "a JSON tool call": ('{"name": "python", "arguments": {"code": "print(1)"}}', "print(1)"),
    "JSON without code": ('{"answer": 42}', None),
    "broken JSON": ('{"code": ', None),
    # -- between prose ------------------------------------------------------------------
    "code after a sentence": (f"Here is the script.\n\n{SCRIPT}", SCRIPT),
    "code before a sentence": (f"{SCRIPT}\n\nThis counts the open ones.", SCRIPT),
    "code between sentences": (
        "I will loop.\n\nfor i in range(3):\n    print(i)\n\nThat is all, enjoy!",
        "for i in range(3):\n    print(i)",
    ),
    "code and a Markdown list": (
        "Steps:\n- find\n- count\n\n" + SCRIPT + "\n\n- That was it\n- Bye",
        SCRIPT,
    ),
    # -- no code ------------------------------------------------------------------------
    "empty": ("", None),
    "white space": (" \n\t\n", None),
    "prose": ("I looked at the data and everything is fine.", None),
    "prose that parses": ("Done", None),
    "prose that parses as a tuple": ("yes, no", None),
    "a number": ("42", None),
    "a refusal": ("I'm sorry, but I can't help with that request.", None),
    "a longer refusal": (
        "I cannot do this.\n\nfor safety reasons: it is not allowed.\nif you need help: ask.",
        None,
    ),
    "only comments": (fenced("# nothing to do here"), None),
    "only comments, no fence": ("# I am a heading\n# and another", None),
    "a Markdown table": ("| a | b |\n|---|---|\n| 1 | 2 |", None),
    # -- characters ---------------------------------------------------------------------
    "CRLF": (fenced(SCRIPT).replace("\n", "\r\n"), SCRIPT),
    "lone CR": (fenced(SCRIPT).replace("\n", "\r"), SCRIPT),
    "a byte order mark": (f"\ufeff{SCRIPT}", SCRIPT),
    "a byte order mark and a fence": (f"\ufeff{fenced(SCRIPT)}", SCRIPT),
    "tabs": (fenced("if True:\n\tprint(1)"), "if True:\n\tprint(1)"),
    "trailing white space": (fenced("x = 1   \nprint(x)\t"), "x = 1   \nprint(x)\t"),
    "unicode": (
        fenced("größe = '日本語 🎉 שלום \U0001d54f'\nprint(f'{größe}→')"),
        "größe = '日本語 🎉 שלום \U0001d54f'\nprint(f'{größe}→')",
    ),
    "separators within strings": (fenced("x = 'a\u2028b\x0cc'\nf(x)"), "x = 'a\u2028b\x0cc'\nf(x)"),
    "an escape that Python warns of": (
        fenced(r"import re; re.findall('\d', x)"),
        r"import re; re.findall('\d', x)",
    ),
    "a syntax error": (fenced("x = = 1\nprint(x)"), "x = = 1\nprint(x)"),
    "a syntax error, output after": (fenced("x = = 1") + "\n" + fenced("24", "text"), "x = = 1"),
}
