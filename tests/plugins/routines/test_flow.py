"""A text that becomes a part of another one has a pattern, unless it is provably used whole."""

import pytest

from delf.errors import ConfigurationError
from delf_routines.routine import Parameter, Routine, UsedAction

ACTIONS = {
    "shop.query": UsedAction(effect="read"),
    "mail.send": UsedAction(effect="irreversible"),
    "shell.run": UsedAction(effect="irreversible"),
    "pay": UsedAction(effect="irreversible"),
}
PARTS = {
    "an f-string": "shop.query(f\"select * from c where name = '{name}'\")",
    "an f-string of its own": "q = f'select {name}'\nshop.query(q)",
    "an f-string with a format": "shop.query(f'{name:>10}')",
    "a format": "shop.query(f'{1:{name}}')",
    "+": 'shop.query("select \'" + name + "\'")',
    "+=": "q = 'select '\nq += name\nshop.query(q)",
    "%": "shop.query(\"select '%s'\" % name)",
    "% with a tuple": "shop.query(\"select '%s' %s\" % (name, 1))",
    "% with a dict": "shop.query(\"select '%(n)s'\" % {'n': name})",
    ".format": "shop.query(\"select '{}'\".format(name))",
    ".format by name": "shop.query(\"select '{n}'\".format(n=name))",
    ".format_map": "shop.query(\"select '{n}'\".format_map({'n': name}))",
    "format of all variables": "shop.query(\"select '{name}'\".format(**globals()))",
    "% of all variables": "shop.query(\"select '%(name)s'\" % vars())",
    "join": "shop.query(' '.join(['select', name]))",
    "join of a list of its own": "words = ['ls', name]\nshell.run(' '.join(words))",
    "join of an appended list": "words = ['ls']\nwords.append(name)\nshell.run(' '.join(words))",
    "replace": "shop.query('select NAME'.replace('NAME', name))",
    "Template": (
        "from string import Template\nshop.query(Template('select $n').substitute(n=name))"
    ),
    "a helper variable": "n = name\nshop.query(f\"select '{n}'\")",
    "two helper variables": "n = name\nm = n.strip()\nshop.query('select ' + m)",
    "a helper function": "def go(n):\n    return shop.query(f\"select '{n}'\")\ngo(name)",
    "a lambda": "go = lambda: 'select ' + name\nshop.query(go())",
    "a global in a function": "def go():\n    shop.query('select ' + name)\ngo()",
    "a loop": "for n in [name, 'Ada']:\n    shop.query(f\"select '{n}'\")",
    "a comprehension": "[shop.query('select ' + n) for n in (name,)]",
    "a dict": "d = {'n': name}\nshop.query('select ' + d['n'])",
    "a list": "d = [name]\nshop.query('select ' + d[0])",
    "a tuple": "a, b = name, 1\nshop.query('select ' + a)",
    "a class": "class C:\n    n = name\nshop.query('select ' + C.n)",
    "a loop in a class": "class C:\n    for n in [name]:\n        pass\nshop.query('x' + C.n)",
    "a file that is printed to": (
        "import io\nf = io.StringIO()\nprint(name, file=f)\nshop.query(f.getvalue())"
    ),
    "what was printed": (
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as f:\n"
        "    print(f'select {name}')\nshop.query(f.getvalue())"
    ),
    "a walrus": "shop.query('select ' + (n := name))",
    "str": "shop.query('select ' + str(name))",
    "a slice": "shop.query('select ' + name[:5])",
    "upper": "shop.query('select ' + name.upper())",
    "a condition": "shop.query('select ' + (name if 1 else 'x'))",
    "a path": "open('/data/' + name)",
    "pathlib": "from pathlib import Path\nopen(Path('/data') / name)",
    "urljoin": "from urllib.parse import urljoin\nshop.query(urljoin('https://a/', name))",
    "json": "import json\nshop.query(json.dumps({'n': name}))",
    "re.sub": "import re\nshop.query(re.sub('NAME', name, 'select NAME'))",
    "a default of get": "q = {}.get('q', name)\nshop.query(f'select {q}')",
    "another print": "def print(x):\n    shop.query(x)\nprint(f'select {name}')",
    "another tool": "import shop\nshop.query(name)",
    "a starred list": "shop.query(*[name])",
    "starred names": "shop.query(**{'statement': name})",
    "two uses, one a part": "shop.query('x', {'n': name})\nshop.query('select ' + name)",
    "eval": "shop.query(eval('\"select \" + name'))",
    "an assignment to it": "name = name + \"'\"\nshop.query('x', {'n': name})",
    "textwrap": "import textwrap\nshop.query(textwrap.dedent('select ' + name))",
    "fill": "import textwrap\nshop.query(textwrap.fill(name))",
    "translate": "shop.query('select X'.translate({88: name}))",
    "maketrans": "shop.query('select X'.translate(str.maketrans({'X': name})))",
    "repr": "shop.query(f'select {name!r}')",
    "ascii": "shop.query('select ' + ascii(name))",
    "bytes": "shop.query((b'select ' + name.encode()).decode())",
    "shlex.quote": "import shlex\nshell.run('cat ' + shlex.quote(name))",
    "shlex.join": "import shlex\nshell.run(shlex.join(['cat', name]))",
    "urllib quote": "from urllib.parse import quote\nshop.query('/c/' + quote(name))",
    "a helper that joins": "def j(*a):\n    return ' '.join(a)\nshop.query(j('select', name))",
    "a lambda's argument": "q = lambda n: f'select {n}'\nshop.query(q(name))",
    "a class attribute": "class Q:\n    pass\nQ.n = name\nshop.query(f'select {Q.n}')",
    "a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass Q:\n    n: str\n"
        "shop.query('select ' + Q(name).n)"
    ),
    "insert": "words = ['select']\nwords.insert(1, name)\nshop.query(' '.join(words))",
    "a slice that is set": "words = [1]\nwords[0:1] = [name]\nshop.query(words[0] + 'x')",
    "reduce": (
        "import functools\nshop.query(functools.reduce(lambda a, b: a + b, ['select ', name]))"
    ),
    "an exception": (
        "try:\n    raise ValueError(name)\nexcept ValueError as e:\n    shop.query(f'x {e}')"
    ),
    "match": "match name:\n    case str() as n:\n        shop.query('select ' + n)",
    "a star": "a, *b = name, 1\nshop.query(a + 'x')",
    "partial": "import functools\nshop.query(functools.partial('{} {}'.format, 'x')(name))",
    "a default": "def q(n=name):\n    return 'select ' + n\nshop.query(q())",
    "a generator": "def q():\n    yield name\nshop.query('select ' + next(q()))",
    "splitting": "shop.query('x '.join(name.split()))",
    "an argument of a class": (
        "class C:\n    def __init_subclass__(cls, key):\n        shop.query('select ' + key)\n"
        "class D(C, key=name):\n    pass"
    ),
    "a decorator": "@name.join\ndef f():\n    pass",
}
WHOLE = {
    "an argument": "mail.send(name)",
    "an argument by name": "mail.send(to=name, text='Hello')",
    "awaited": "await mail.send(to=name)",
    "of a function": "pay(name, 5)",
    "a bound parameter": "shop.query('select * from c where name = :n', {'n': name})",
    "bound parameters in a list": "shop.query('select * from c where name = ?', [name, 1])",
    "compared": "rows = shop.query('x')\nprint([r for r in rows if r['name'] == name])",
    "a key": "rows = shop.query('x')\nprint(rows[name], rows.get(name, 0))",
    "a default of get that is printed": "d = shop.query('x')\nprint(d.get('who', name))",
    "an answer": "print(f'{name} has paid')\nprint(name)",
    "a helper variable": "to = name\nmail.send(to=to)",
    "without spaces around": "mail.send(to=name.strip().lower())",
    "a loop": "for to in [name, 'ada@example.com']:\n    mail.send(to=to)",
    "a condition": "if name and len(name) > 2:\n    mail.send(to=name if 1 else 'x')",
    "a condition of a comprehension": "mail.send(to=[n for n in ['Ada'] if name])",
    "never": "print(1)",
}


def routine(script: str, default: str = "Bob", **more) -> Routine:
    parameter = Parameter(name="name", type="text", default=default, **more)
    return Routine(
        name="r",
        title="t",
        task="t",
        script=script,
        parameters={"name": parameter},
        actions=ACTIONS,
    )


@pytest.mark.parametrize("script", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(
    "value", ["x' or name = 'Bob", 'x" --', "x; rm -rf /", "../../etc/passwd", "--all", "$(id)"]
)
def test_value_inserted_into_text_must_match_a_pattern(script, value):
    made = routine(script)
    with pytest.raises(ConfigurationError, match="has to match"):
        made.values({"name": value})
    assert made.values({"name": "Lovelace-Byron"}) == {"name": "Lovelace-Byron"}
    assert made.values({}) == {"name": "Bob"}


@pytest.mark.parametrize("script", WHOLE.values(), ids=WHOLE)
def test_value_passed_unchanged_may_be_any_text(script):
    made = routine(script)
    assert made.parameters["name"].pattern is None
    assert made.values({"name": "x' or name = 'Bob"}) == {"name": "x' or name = 'Bob"}


BARE = {
    "an f-string": "shop.query(f'select * from c where id = {name}')",
    "behind quotes": "shop.query(f\"select 'a' from c where id = {name}\")",
    "between quotes": "shop.query(f\"select * from c where a = 'a' and id = {name} or b = 'b'\")",
    "a comment with an apostrophe": 'shop.query(f"-- it\'s\\nselect * from c where id = {name}")',
    "a format": "shop.query('select * from c where id = {}'.format(name))",
    "+": "shop.query('select * from c where id = ' + name)",
    "shlex.quote": "import shlex\nshop.query('select 1 where id = ' + shlex.quote(name))",
    "quotes and none": "shop.query(f\"select '{name}' where id = {name}\")",
    "repr in quotes": "shop.query(f\"select '{name!r}'\")",
}


@pytest.mark.parametrize("script", BARE.values(), ids=BARE)
@pytest.mark.parametrize("value", ["1 or 1", "id", "true", "", "1-1", "1 union select 2", "١"])
def test_unquoted_number_must_stay_a_number(script, value):
    made = routine(script, default="17")
    with pytest.raises(ConfigurationError, match="has to match"):
        made.values({"name": value})
    assert made.values({"name": "18"}) == {"name": "18"}


@pytest.mark.parametrize("script", BARE.values(), ids=BARE)
def test_unquoted_value_has_no_more_words_than_the_task(script):
    made = routine(script, default="orders")
    with pytest.raises(ConfigurationError, match="has to match"):
        made.values({"name": "orders union select secret from keys"})
    assert made.values({"name": "bills"}) == {"name": "bills"}
    made = routine(script, default="Ada Lovelace")
    assert made.values({"name": "Grace Hopper"}) == {"name": "Grace Hopper"}
    with pytest.raises(ConfigurationError, match="has to match"):
        made.values({"name": "x or 1"})


@pytest.mark.parametrize(
    "script",
    [
        "shop.query(f\"select * from c where name = '{name}'\")",
        "shop.query(f\"select * from c where name like '%{name}%' and a = 'b'\")",
        "shop.query(f'select {name!r}')",
        "n = name\nshell.run(f'ls \"{n}\"')",
    ],
)
def test_quoted_value_may_have_any_number_of_words(script):
    made = routine(script)
    assert made.values({"name": "Ada King Lovelace"}) == {"name": "Ada King Lovelace"}
    for value in ("x' or name = 'Bob", 'a" b', "", ".", "..", "-x", "$(id)", "a\\"):
        with pytest.raises(ConfigurationError, match="has to match"):
            made.values({"name": value})


def test_pattern_is_stored_and_accepts_the_original_value():
    made = routine("shop.query('select ' + name)", default="O'Brien")
    again = Routine.of_text("r", made.text(), "r.py")
    assert again == made
    assert again.parameters["name"].pattern is not None
    assert again.values({"name": "O'Brien"}) == {"name": "O'Brien"}
    with pytest.raises(ConfigurationError):
        again.values({"name": "O'Connor"})


def test_parameter_without_pattern_in_the_file_gets_one_from_the_script():
    text = routine("shop.query('select ' + name)").text()
    lines = [line for line in text.splitlines() if not line.startswith("# pattern")]
    read = Routine.of_text("r", "\n".join(lines) + "\n", "r.py")
    with pytest.raises(ConfigurationError, match="has to match"):
        read.values({"name": "x' or name = 'Bob"})


def test_user_pattern_of_a_parameter_is_kept():
    made = routine("shop.query('select ' + name)", pattern="[a-z]+'?")
    assert made.values({"name": "x'"}) == {"name": "x'"}
