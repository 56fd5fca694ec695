"""Origins of values: found by their letters, whatever stands between these."""

import random
import time

import pytest

from delf import tool
from delf.events import CallFinished, CallStarted, ModelCalled, ScriptGenerated
from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins import origin as origin_module
from delf_engine.origins.fold import Origins
from delf_engine.origins.origin import PastCall, find_in
from delf_engine.origins.texts import has_address_or_code, is_only_one, letters_and_digits
from delf_engine.origins.values import texts_with_trust

SEEN = {"task_id": "t", "seq": 0, "at": 0.0}


def bound(name, trust):
    """An action of a task, which does nothing."""

    def call(to: str = "") -> str:
        """Do nothing."""
        return to

    call.__name__ = name.replace(".", "_")
    made = tool(effect="read", confirm=False, trust=trust)(call)
    return BoundAction(made, made.action, name, asks=False)


def origins_of(own=None, outside=None, *, code="pass", task="Pay the bill"):
    """Origins after a call with one's own data, and one with others' words."""
    origins = Origins(task, list, lambda action: bound(action, action))
    origins.follow(
        [
            ModelCalled(**SEEN, model="m", purpose="generate"),
            ScriptGenerated(**SEEN, code=code, attempt=1),
            *(
                CallFinished(
                    **SEEN, call_id=n, action=action, status="ok", result=given, duration_ms=1.0
                )
                for n, (action, given) in enumerate((("own", own), ("outside", outside)), 1)
            ),
        ]
    )
    return origins


def origin(value, **given):
    return origins_of(**given).find(value)


FOUND = {
    "digits in groups": ("+491701234567", "call +49 170 1234567 now"),
    "digits that were put in groups": ("49 170 12 345 67", "call +491701234567 now"),
    "a short number that is a whole value": ("4711", [4711]),
    "an address behind a scheme": ("see ada1@b.de", "mailto:ada1@b.de"),
    "an id in a sentence": ("the ticket R-48213 please", ["R-48213"]),
    "two words with one letter of two bytes": ("Müller Straße 8", "in der Müller-Straße 8, hinten"),
    "in full width and with letters of no width": (
        "ＤＥ８９\u200b370400440532",
        "DE89 3704 0044 0532",
    ),
    "a passage of a longer text": (
        "-" + "q" * 90 + "many words of a stranger " * 6,
        "many words of a stranger " * 9,
    ),
    "half of a character": ("\ud83d broken text of theirs", "a \ud83d broken text of theirs"),
}


@pytest.mark.parametrize(("value", "given"), FOUND.values(), ids=FOUND)
def test_foreign_text_is_found_in_every_spelling(value, given):
    assert origin(value, outside=given).is_from_untrusted_data


@pytest.mark.parametrize(
    ("task", "parts", "wholes"),
    [
        ("Pay 1,250 EUR", ["1", "250", "250 EUR"], ["1,250"]),
        ("Pay €1.250,50.", ["1.250", "250", "50"], ["1.250,50"]),
        ("Pay 1'250", ["1", "250"], ["1'250"]),
        ("Pay 1 250", ["50", "125", "1", "250"], ["1250"]),
        ("Pay 1\u202f250 EUR", ["1", "250"], ["1250"]),
        ("Pay 1.250", ["1.25", "1", "250"], ["1.250"]),
        ("Add -5 and .5", ["5"], ["-5"]),
        ("On 11/30/2026 at 10:30pm", ["11", "30", "10", "11/30"], ["11/30/2026"]),
        ("On 2026-11-30", ["2026", "11", "30"], ["2026-11-30"]),
        ("Book the rooms 1 2", ["12"], ["1", "2"]),
        ("Delete rows 1,2,3 and /v1/12", ["23"], ["1", "2", "3", "12"]),
        ("Use +49 170 1234567, then 5.", ["170123"], ["+491701234567", "5"]),
    ],
)
def test_part_of_a_number_is_not_mentioned_by_the_task(task, parts, wholes):
    assert {value: origin(value, task=task).kind == "task" for value in (*parts, *wholes)} == {
        **dict.fromkeys(parts, False),
        **dict.fromkeys(wholes, True),
    }


def test_commas_separate_numbers_of_a_script():
    origins = origins_of(outside="a mail", code="x = [1,250]")
    assert [origins.find(value).kind for value in ("1", "250", "25")] == [
        "script",
        "script",
        "unknown",
    ]


@pytest.mark.parametrize("length", [*range(3, 40), 150, 700])
def test_part_of_foreign_text_is_found_at_any_offset(length):
    letters = "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=3000))
    for begin in range(1, 18):
        value = letters[begin : begin + length]
        given = [value] if length < 12 else letters
        found = origin(value, outside=given)
        assert found.is_from_untrusted_data
        assert found.is_part == (length >= 12)


def test_unknown_value_has_unknown_origin():
    letters = "".join(random.Random(1).choices("abcdefghij", k=50_000))
    origins = origins_of(outside=letters)
    for length in (3, 6, 9, 14, 15, 16, 30, 200):
        assert origins.find("z" + letters[:length].upper()[::-1]).kind == "unknown"


TRUST = {
    "customers": "own",
    "mails": "outside",
    "rows": {"id": "own", "*": "outside"},
    "shop.rows": "own",
    "shop.keep": "own",
    "pay": "outside",
}
SOURCES = {
    "a constant": ("pay('GB33')", True),
    "a constant by a name": ("to = 'GB33'\npay(to)", True),
    "constants put together": (
        "import datetime as dt\npay(f'{dt.date(2026, 1, 1)}' + 'x'.upper())",
        True,
    ),
    "own data in the call": ("pay(customers()[0]['iban'])", True),
    "own data by a name": ("for c in customers():\n    pay(c['iban'])", True),
    "own data, changed": ("pay(customers()[0]['iban'][::-1])", True),
    "own data of an own name": ("pay(customers(name='Ada'))", True),
    "an own field": ("pay(rows()[0]['id'])", True),
    "own data through a function": ("def go(to):\n    pay(to)\ngo(customers()[0])", True),
    "another's value beside it": ("m = mails()\nprint(m)\npay('GB33')", True),
    "a table of constants": ("T = {'a': 'GB33'}\npay(T['a'])", True),
    "another's data": ("pay(mails()[0]['body'])", False),
    "another's data by a name": ("m = mails()\nx = m[0]\npay(x['body'])", False),
    "another field": ("pay(rows()[0]['text'])", False),
    "an own field beside the whole record": ("r = rows()[0]\npay((r['id'] + str(r))[:1])", False),
    "an own field of a row that its text selects": (
        "r = [r for r in rows() if 'GB' in str(r)]\npay(r[0]['id'])",
        False,
    ),
    "an own field of a numbered row": ("for n, r in enumerate(rows()):\n    pay(r['id'])", True),
    "own data that another names": ("pay(customers(name=mails()[0]))", False),
    "own data that another chooses": (
        "m = mails()\npay([c for c in customers() if c in m][0])",
        False,
    ),
    "a constant that another chooses": ("T = {'a': 'GB33'}\npay(T[mails()[0]])", False),
    "a constant that another chooses in two steps": (
        "to = 'GB33'\nif 'b' in mails():\n    to = 'GB44'\npay(to)",
        False,
    ),
    "a count": ("n = 0\nfor m in mails():\n    n += 1\npay(n)", False),
    "a list that another was put into": ("a = ['GB33']\na.append(mails()[0])\npay(a)", False),
    "a record that another was put into": ("a = {}\na['to'] = mails()[0]\npay(a)", False),
    "a function": ("def to():\n    return mails()[0]\npay(to())", False),
    "a function's parameter": ("def go(to):\n    pay(to)\ngo(mails()[0])", False),
    "a function's parameter in a row": ("go = lambda to: pay(to)\nlist(map(go, mails()))", False),
    "a class": (
        "class P:\n    def __init__(self, v):\n        self.v = v\npay(P(mails()).v)",
        False,
    ),
    "a failure": ("try:\n    mails()\nexcept Exception as e:\n    pay(str(e))", False),
    "a constant that a failure decides": (
        "try:\n    mails()[0]\n    to = 'a'\nexcept KeyError:\n    to = 'b'\npay(to)",
        False,
    ),
    "a constant that a match decides": (
        "match mails():\n    case []:\n        to = 'a'\n    case _:\n        to = 'b'\npay(to)",
        False,
    ),
    "a constant at which a loop ends": (
        "for to in 'ab':\n    if to in mails():\n        break\npay(to)",
        False,
    ),
    "a list out of which another takes": ("a = ['b', 'c']\nx = a.pop(mails())\npay(a[0])", False),
    "a list that another sorts": ("a = ['b']\na.sort(key=lambda x: mails())\npay(a)", False),
    "a module that another changed": (
        "import random\nrandom.seed(mails())\npay(random.random())",
        False,
    ),
    "an object that another was set in": (
        "class O:\n    pass\no = O()\nsetattr(o, 'x', mails())\npay(o.x)",
        False,
    ),
    "a function that another decorates": (
        "def d(f):\n    return mails\n@d\ndef to():\n    return 'a'\npay(to())",
        False,
    ),
    "what is printed elsewhere": (
        "import io\nb = io.StringIO()\nprint(mails(), file=b)\npay(b.getvalue())",
        False,
    ),
    "a print of both": ("a = 'GB33'\nm = mails()\nprint(a, m)\npay(a)", True),
    "a place in a list that another gives": ("pay(['a', 'b'][mails()])", False),
    "a generator": ("def all():\n    yield mails()[0]\npay(next(all()))", False),
    "a function in a function": (
        "def made():\n    t = mails()\n    def f():\n        return t\n    return f\npay(made()())",
        False,
    ),
    "an own value beside texts of both": (
        "m = mails()\nc = customers()[0]\ntext = c['name'] + m[0]['body']\npay(c['iban'])",
        True,
    ),
    "a helper that gets own data": (
        "m = mails()\nasync def go(c, d):\n    pass\nfor c in customers():\n    go(c, 1)\npay(c)",
        True,
    ),
    "a file": ("pay(open('bill.txt').read())", False),
    "a module that reads": ("import os\npay(os.environ['X'])", False),
    "arguments that another gives": ("pay(**mails()[0])", False),
    "a name that nobody knows": ("pay(somebody)", False),
    "no call that is written": ("p = pay\np('GB33')", False),
    "rows changed in a loop": (
        "a = [{'to': 'GB33'}]\nfor r in a:\n    r['to'] = mails()[0]\npay(a[0])",
        False,
    ),
    "a list changed under another name": (
        "a = {'l': []}\nb = a['l']\nb.append(mails()[0])\npay(a['l'][0])",
        False,
    ),
    "one object with two names": ("a = b = []\na.append(mails()[0])\npay(b[0])", False),
    "a list extended under another name": ("a = []\nb = a\nb += mails()\npay(a[0])", False),
    "a number computed from own data": (
        "x = round(len(customers()[0]['iban']) * 0.5, 2)\npay(f'{x} EUR')",
        True,
    ),
    "own data beside a table filled from the same record": (
        "t = {}\nfor c in customers():\n    t[c['name']] = c['iban']\n    pay(c['iban'])",
        True,
    ),
    "a table filled with own data": (
        "t = {}\nfor c in customers():\n    t.setdefault(c['name'], []).append(c)\n    pay(t['Ada'])",
        True,
    ),
    "a list built of own data": (
        "mails()\na = []\nfor c in customers():\n    a.append(c['iban'])\npay(a[0])",
        True,
    ),
    "a list built of own data in a loop over another's": (
        "a = []\nfor m in mails():\n    a.append('GB33')\npay(str(a))",
        False,
    ),
    "what a function returns of own data": (
        "def of(c):\n    return c['iban']\nmails()\npay(of(customers()[0]))",
        True,
    ),
    "what a function returns of another's choice": (
        "def of(m):\n    if m:\n        return 'GB33'\n    return 'GB44'\npay(of(mails()))",
        False,
    ),
    "a constant that own data decide": (
        "mails()\nto = 'GB33'\nif customers():\n    to = 'GB44'\npay(to)",
        True,
    ),
    "a constant that another's value decides": (
        "to = 'GB33'\nif mails():\n    to = 'GB44'\npay(to)",
        False,
    ),
    "an own item at which an own condition ends a loop": (
        "mails()\nfor c in customers():\n    if c['name'] == 'Ada':\n        break\npay(c['iban'])",
        True,
    ),
    "an own item before which another's condition ends a function": (
        (
            "def of():\n    a = []\n    for c in customers():\n        a.append(c)\n        if mails():\n"
            "            return a\n    return a\npay(str(of()))"
        ),
        False,
    ),
    "own pages read until the last": (
        "mails()\na = customers()\nwhile len(a) < 9:\n    a = a + customers(name=str(len(a)))\npay(a[0])",
        True,
    ),
    "a list of a table that a function returns": (
        "t = {}\ndef of(k):\n    return t.setdefault(k, [])\nof('a').append(mails()[0])\npay(t['a'])",
        False,
    ),
    "a constant in a try around another's call": (
        "try:\n    mails()\n    pay('GB33')\nexcept ValueError:\n    pass",
        True,
    ),
    "a keyword of a function, beside another's rest": (
        "def go(*rest, to):\n    print(rest)\n    pay(to)\ngo(mails(), to='GB33')",
        True,
    ),
    "the rest of a function's arguments": ("def go(*to):\n    pay(to)\ngo(mails())", False),
    "a function of a module that the script replaces": (
        "import json\njson.loads = lambda s: mails()[0]\npay(json.loads('[]'))",
        False,
    ),
    "a module's state that another's value sets": (
        "import decimal\ndecimal.getcontext().prec = mails()\npay(str(decimal.Decimal(1) / 3))",
        False,
    ),
    "a name that another's value imports": (
        "if mails():\n    from math import pi as n\nelse:\n    from math import e as n\npay(n)",
        False,
    ),
    "an own item that a list keeps for another": (
        "done = []\nfor c in customers():\n    if mails():\n        done.append(c)\n    pay(c['iban'])",
        True,
    ),
    "a list kept in a list to which another is appended": (
        "a = []\nb = [a]\nb[0].append(mails())\npay(str(a))",
        False,
    ),
    "a list of a loop over lists": (
        "a = []\nfor b in [a]:\n    b.append(mails())\npay(str(a))",
        False,
    ),
    "a constant after a try around another's call": (
        "to = 'GB33'\ntry:\n    int(mails())\n    to = 'GB44'\nexcept ValueError:\n    pass\npay(to)",
        False,
    ),
    "own data after a try around own calls": (
        "mails()\ntry:\n    c = customers()\nexcept ValueError:\n    c = []\npay(str(c))",
        True,
    ),
    "a constant after a try around a helper with another's call": (
        "def f():\n    int(mails())\nto = 'GB33'\ntry:\n    f()\n    to = 'GB44'\nexcept ValueError:\n    pass\npay(to)",
        False,
    ),
    "own data through a lambda with a name": (
        "mails()\nf = lambda c: c['iban']\npay(f(customers()[0]))",
        True,
    ),
    "another's data through a lambda with a name": (
        "f = lambda c: c['iban']\npay(f(mails()[0]))",
        False,
    ),
    "another's data in a lambda with a name": (
        "f = lambda: mails()[0]\npay(f())",
        False,
    ),
    "an action in a lambda of a table": (
        "t = {'a': lambda to: pay(to)}\nt['a'](mails()[0])",
        False,
    ),
    "a list that a lambda returns": (
        "a = []\nf = lambda: a\nf().append(mails()[0])\npay(a[0])",
        False,
    ),
    "a record matched by a pattern": (
        "match mails():\n    case [to]:\n        pay(to)",
        False,
    ),
    "a constant that own and another's data decide": (
        "x = 'GB33' if customers() and mails() else 'GB44'\npay(x)",
        False,
    ),
    "the number of a pass": ("for n, m in enumerate(mails(), start=1):\n    pay(f'{n}.txt')", True),
    "the number of all passes": ("for n, m in enumerate(mails()):\n    print(n)\npay(n)", False),
    "the number of a pass, from another's start": (
        "for n, m in enumerate([1], start=len(mails())):\n    pay(n)",
        False,
    ),
    "a record chosen by an own field": ("pay(min(rows(), key=lambda r: r['id'])['id'])", True),
    "a record chosen by another's field": (
        "pay(min(rows(), key=lambda r: r['text'])['id'])",
        False,
    ),
    "another's field named as an own one": ("pay(rows()[0]['form']['id'])", False),
    "a field whose name the script computes": ("k = 'id'\npay(rows()[0][k])", False),
    "a record that a function fills": (
        "def fill(into):\n    into['to'] = mails()[0]\na = {}\nfill(a)\npay(a['to'])",
        False,
    ),
    "a method under another name": ("a = []\nput = a.append\nput(mails()[0])\npay(a[0])", False),
    "a change whose result is used": (
        "a = {}\nx = a.setdefault('to', mails()[0])\npay(a['to'])",
        False,
    ),
    "a change in a lambda": ("a = []\nf = lambda: a.append(mails()[0])\nf()\npay(a[0])", False),
    "a removal that another decides": (
        "a = ['GB33', 'GB44']\nif mails():\n    del a[0]\npay(a[0])",
        False,
    ),
    "a change that another decides": (
        "a = ['GB33', 'GB44']\nmails() and a.pop()\npay(a[-1])",
        False,
    ),
    "a step that another's error leaves out": (
        "import contextlib\nto = 'GB33'\nwith contextlib.suppress(ValueError):\n    int(mails()[0])\n    to = 'GB44'\npay(to)",
        False,
    ),
    "an action under another name": ("pay('GB33')\np = pay\np(mails()[0])", False),
    "an action that a helper calls": (
        "def safe(f, x):\n    f(x)\npay('GB33')\nsafe(pay, mails()[0])",
        False,
    ),
    "a function with the name of an action": (
        "def customers(name):\n    return mails()\npay(customers('Ada')[0])",
        False,
    ),
    "an operator of a class": (
        "class T:\n    def __add__(self, o):\n        self.to = o\nt = T()\nt + mails()[0]\npay(t.to)",
        False,
    ),
    "a method that a base class calls": (
        "from html.parser import HTMLParser\na = []\nclass P(HTMLParser):\n    def handle_data(self, data):\n        a.append(data)\nP().feed(mails()[0])\npay(a[0])",
        False,
    ),
    "names by their text": ("globals().update(to=mails()[0])\nto = 'GB33'\npay(to)", False),
    "a constant in a loop over another's": (
        "for m in mails():\n    print(m)\nfor to in ['GB33']:\n    pay(to)",
        True,
    ),
    "own data that is sorted": (
        "a = sorted(customers(), key=lambda c: c['name'])\npay(a[0]['iban'])",
        True,
    ),
    "a parameter beside another's value": (
        "def go(a, b):\n    pay(a)\ngo('GB33', mails()[0])",
        True,
    ),
    "a keyword-only parameter that is spelled almost like another": (
        "def go(mail_to='GB33', *, mailTo):\n    pay(mailTo)\ngo(mailTo=mails()[0])",
        False,
    ),
    "a parameter of two calls": ("def go(a):\n    pay(a)\ngo('GB33')\ngo(mails()[0])", False),
    "a parameter's default": ("def go(a=mails()[0]):\n    pay(a)\ngo()", False),
    "a parameter of a decorated function": (
        "def d(f):\n    return lambda a: f(mails()[0])\n@d\ndef go(a):\n    pay(a)\ngo('GB33')",
        False,
    ),
    "a parameter whose arguments another gives": (
        "def go(a):\n    pay(a)\ngo(*mails())",
        False,
    ),
    "a loop over own data": ("mails()\nfor c in customers():\n    pay(c['iban'])", True),
    "own data read in a loop": (
        "mails()\nfor n in ['Ada']:\n    c = customers(name=n)\n    pay(c[0]['iban'])",
        True,
    ),
    "own data read in a loop over another's": (
        "for m in mails():\n    c = customers()\n    pay(c[0]['iban'])",
        True,
    ),
    "own data read in a loop that another steps over": (
        "m = mails()\nfor n in ['Ada']:\n    if m:\n        continue\n    c = customers(name=n)\npay(c[0]['iban'])",
        False,
    ),
    "an item of own data": (
        "mails()\nb = next(c for c in customers() if c['name'] == 'Ada')\npay(b['iban'])",
        True,
    ),
    "an item of own data that another finds": (
        "m = mails()\nb = next(c for c in customers() if c['name'] in m)\npay(b['iban'])",
        False,
    ),
    "own data that another sorts": (
        "m = mails()\na = customers()\na.sort(key=lambda c: m.count(c))\npay(a[0]['iban'])",
        False,
    ),
    "the largest of own data for another": (
        "m = mails()\nc = max(customers(), key=lambda c: m.count(c['name']))\npay(c['iban'])",
        False,
    ),
    "an own item that another's loop leaves": (
        "m = mails()\nfor c in customers():\n    if c['name'] in m:\n        break\npay(c['iban'])",
        False,
    ),
    "a constant of a list that another extends": (
        "a = ['GB33']\nb = a\nb.append(mails()[0])\nfor c in a:\n    pay(c)",
        False,
    ),
    "a spread argument that another spread follows": ("pay(**mails()[0], **{'x': 'GB33'})", False),
    "another's value before a spread one": ("pay(mails()[0], *['GB33'])", False),
    "a split text to which another's is appended": (
        "a = 'GB33 GB44'.split()\nfor m in mails():\n    a.append(m)\nfor c in a:\n    pay(c)",
        False,
    ),
    "a list changed by a method with a name of its own": (
        "a = ['GB33']\nput = a.append\nput(mails()[0])\nfor c in a:\n    pay(c)",
        False,
    ),
    "a list changed by a method given to another function": (
        "a = ['GB33']\nlist(map(a.append, mails()))\nfor c in a:\n    pay(c)",
        False,
    ),
    "a list changed through the class": (
        "m = mails()\na = customers()\nlist.sort(a, key=lambda c: m.count(c))\npay(a[0]['iban'])",
        False,
    ),
    "a list inside a record that another sorts": (
        "m = mails()\na = {'all': customers()}\na['all'].sort(key=lambda c: m.count(c))\npay(a['all'][0]['iban'])",
        False,
    ),
    "own data under a second name that another sorts": (
        "m = mails()\na = customers()\nb = a\nb.sort(key=lambda c: m.count(c))\npay(a[0]['iban'])",
        False,
    ),
    "own data that a helper function lets another sort": (
        "def order(rows, m):\n    rows.sort(key=lambda c: m.count(c))\na = customers()\norder(a, mails())\npay(a[0]['iban'])",
        False,
    ),
    "own data under a key that another chooses": (
        "m = mails()\na = {}\nfor c in customers():\n    a[c['name'] in m] = c['iban']\npay(a[True])",
        False,
    ),
    "an iterator that another's loop moves": (
        "q = enumerate(customers())\nfor m in mails():\n    next(q)\npay(next(q)[1]['iban'])",
        False,
    ),
    "a key's parameter": ("max(mails(), key=lambda m: pay(m))", False),
    "a key's parameter over own data": (
        "sorted(customers(), key=lambda c: pay(c['iban']), reverse=True)",
        True,
    ),
    "a parameter by position alone": (
        "def go(label, /, to):\n    pay(to)\ngo('GB33', to=mails()[0])",
        False,
    ),
    "a parameter of one of two functions of a name": (
        "def go(a):\n    pay(a)\nclass P:\n    def go(self, a):\n        pay(a)\ngo('GB33')\nP().go(mails()[0])",
        False,
    ),
    "a name that another's condition binds beside a function in a loop": (
        "to = 'GB33'\nfor n in [1]:\n    def to2():\n        pass\nif mails():\n    to = mails()[0]\npay(to)",
        False,
    ),
    "a second way to the action on the line": (
        "shop.keep('GB33'), getattr(shop, 'keep')(mails()[0])\npay(shop.rows()[0])",
        False,
    ),
    "a key that reading puts into a table": (
        "import collections\nm = mails()\nd = collections.defaultdict(int)\nprint(d[m['iban']])\nfor to in d:\n    pay(to)",
        False,
    ),
    "keys that reading in a comprehension puts into a table with a name of its own": (
        "from collections import defaultdict as dd\nm = mails()\nd = dd(int)\nx=[d[r['iban']] for r in m]\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key that a condition puts into a table": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\nif d[m['iban']] > 0:\n    print(1)\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key read of a table under a second name": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\ne = d\ne[m['iban']]\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key read of a table inside a record": (
        "from collections import defaultdict\nm = mails()\nd = {'a': defaultdict(int)}\nd['a'][m['iban']]\nfor to in d['a']:\n    pay(to)",
        False,
    ),
    "a key read of a table that was put into a record": (
        "from collections import defaultdict\nm = mails()\nd = {}\nd['a'] = defaultdict(int)\nd['a'][m['iban']]\nfor to in d['a']:\n    pay(to)",
        False,
    ),
    "a key that a function reads of a table": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\ndef f(t, k):\n    return t[k]\nf(d, m['iban'])\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key that a lambda reads of a table": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\nlist(map(lambda t: t[m['iban']], [d]))\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key that a passed function reads of a table": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\ndef f(t):\n    return t[m['iban']]\nlist(map(f, [d]))\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key whose list a table makes": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(list)\nd[m['iban']].append(1)\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key read of a table that a function makes": (
        "from collections import defaultdict\nm = mails()\ndef f():\n    return defaultdict(int)\nd = f()\nd[m['iban']]\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key that a format reads of a table": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\nprint(('{d[%s]}' % m['x']).format(d=d))\nfor to in d:\n    pay(to)",
        False,
    ),
    "a key that an old format reads of a table": (
        "from collections import defaultdict\nm = mails()\nd = defaultdict(int)\nprint(m['x'] % d)\nfor to in d:\n    pay(to)",
        False,
    ),
    "a constant of a table in which another's key is looked up": (
        "m = mails()\nT = {'a': 'GB33'}\nprint(T[m['x']])\npay(T['a'])",
        True,
    ),
    "own data of a table in which another's key is looked up": (
        "m = mails()\nc = {x['name']: x for x in customers()}\nprint(c[m['x']])\npay(c['Ada']['iban'])",
        True,
    ),
    "own data beside a row that its number chooses": (
        "m = mails()\nfor n, c in enumerate(customers()):\n    print(m[n], c)\n    pay(c['iban'])",
        True,
    ),
    "a list that the default of a table changes": (
        "from collections import defaultdict\nm = mails()\ni = []\nd = defaultdict(lambda: i.append(1))\n[d[r['x']] for r in m]\npay(len(i))",
        False,
    ),
    "a list that a lambda changes as often as another says": (
        "m = mails()\ni = []\nlist(map(lambda x: i.append(1), range(m['n'])))\npay(len(i))",
        False,
    ),
    "a list that a passed function changes as often as another says": (
        "m = mails()\ni = []\ndef f(x):\n    i.append(1)\nlist(map(f, range(m['n'])))\npay(len(i))",
        False,
    ),
    "a list that a passed lambda with a name changes as often as another says": (
        "m = mails()\ni = []\nf = lambda x: i.append(1)\nlist(map(f, range(m['n'])))\npay(len(i))",
        False,
    ),
    "a list that a key of a sort changes": (
        "m = mails()\ni = []\nsorted(m, key=lambda x: i.append(1) or 1)\npay(len(i))",
        False,
    ),
    "a list that a key of a minimum changes": (
        "m = mails()\ni = []\nmin(range(m['n']), key=lambda x: i.append(1) or 1)\npay(len(i))",
        False,
    ),
    "a list that a key of a method changes": (
        "m = mails()\ni = []\nm.sort(key=lambda x: i.append(1) or 1)\npay(len(i))",
        False,
    ),
    "a list that a replacement changes": (
        "import re\nm = mails()\ni = []\nre.sub('a', lambda x: i.append(1) or '', m['n'])\npay(len(i))",
        False,
    ),
    "a list that a method changes as often as a base class calls it": (
        "from html.parser import HTMLParser\ni = []\nclass P(HTMLParser):\n    def handle_data(self, data):\n        i.append(1)\nP().feed(mails()['x'])\npay(len(i))",
        False,
    ),
    "a list that a decorated function changes": (
        "i = []\ndef d(f):\n    return [f() for m in mails()]\n@d\ndef go():\n    i.append(1)\npay(len(i))",
        False,
    ),
    "an iterator that a search moves": (
        "m = mails()\nc = iter(range(100000))\nm['n'] in c\npay(next(c))",
        False,
    ),
    "a generator that a search moves": (
        "m = mails()\nc = (x for x in range(100000))\nm['n'] in c\npay(next(c))",
        False,
    ),
    "an iterator that a search moves under a second name": (
        "m = mails()\nc = iter(range(100000))\nb = c\nm['n'] in b\npay(next(c))",
        False,
    ),
    "an iterator with a second name that a search moves": (
        "m = mails()\nc = iter(range(100000))\nb = c\nm['n'] in c\npay(next(b))",
        False,
    ),
    "a map that a search moves": (
        "m = mails()\nc = map(str, range(100000))\nm['n'] in c\npay(next(c))",
        False,
    ),
    "a generator of a function that a search moves": (
        "m = mails()\ndef g():\n    yield 1\n    yield 2\nc = g()\nm['n'] in c\npay(next(c))",
        False,
    ),
    "an iterator that another's list moves": (
        "m = mails()\nit = iter(range(9))\nd = dict(zip(m, it))\npay(next(it))",
        False,
    ),
    "an iterator that another's number moves": (
        "import itertools\nm = mails()\nit = iter(range(9))\nd = list(itertools.islice(it, m['n']))\npay(next(it))",
        False,
    ),
    "a count beside another's list in a comprehension": (
        "import itertools\nm = mails()\nids = itertools.count()\nx = [a for a, b in zip(ids, m)]\npay(next(ids))",
        False,
    ),
    "a count beside another's list in a loop": (
        "from itertools import count\nm = mails()\nids = count()\nfor a, b in zip(m, ids):\n    print(a)\npay(next(ids))",
        False,
    ),
    "an iterator that a test of its items moves": (
        "m = mails()\nc = iter(range(9))\nany(x == m['n'] for x in c)\npay(next(c))",
        False,
    ),
    "an iterator that a lambda's test of its items moves": (
        "m = mails()\nc = iter(range(9))\nany(map(lambda x: x == m['n'], c))\npay(next(c))",
        False,
    ),
    "an iterator whose loop another's value ends": (
        "m = mails()\nc = iter(range(9))\nfor x in c:\n    if x == m['n']:\n        break\npay(next(c))",
        False,
    ),
    "an iterator that another's condition spreads": (
        "m = mails()\nc = iter(range(9))\nif m['x']:\n    print(*c)\npay(next(c, 1))",
        False,
    ),
    "an iterator that another's condition empties": (
        "m = mails()\nc = iter(range(9))\nif m['x']:\n    list(c)\npay(next(c, 1))",
        False,
    ),
    "an iterator that another's loop unpacks": (
        "m = mails()\nc = iter(range(9))\nfor r in m:\n    a, b = zip(c, 'ab')\npay(next(c, 1))",
        False,
    ),
    "a precision that another sets": (
        "import decimal\nm = mails()\ndecimal.setcontext(decimal.Context(prec=m['n']))\npay(decimal.Decimal(1) / 3)",
        False,
    ),
    "a local precision that another sets": (
        "from decimal import localcontext, Decimal\nm = mails()\nwith localcontext(prec=m['n']):\n    pay(Decimal(1) / 3)",
        False,
    ),
    "a precision that another sets by an imported function": (
        "from decimal import setcontext, Context, Decimal\nm = mails()\nsetcontext(Context(prec=m['n']))\npay(Decimal(1) / 3)",
        False,
    ),
    "a precision that another sets by a function with a name of its own": (
        "from decimal import setcontext as s, Context, Decimal\nm = mails()\ns(Context(prec=m['n']))\npay(Decimal(1) / 3)",
        False,
    ),
    "a precision that another sets for a class with a name of its own": (
        "import decimal\nfrom decimal import Decimal\nm = mails()\ndecimal.setcontext(decimal.Context(prec=m['n']))\npay(Decimal(1) / 3)",
        False,
    ),
    "a precision that another sets in the context": (
        "from decimal import getcontext, Decimal\nm = mails()\ngetcontext().prec = m['n']\npay(Decimal(1) / 3)",
        False,
    ),
    "an own item of a list in which another's value is searched": (
        "m = mails()\nk = [c['name'] for c in customers()]\nif m['s'] in k:\n    print(1)\npay(k[0])",
        True,
    ),
    "a set of a generator in which another's value is searched": (
        "m = mails()\nk = set(c['name'] for c in customers())\nif m['s'] in k:\n    print(1)\npay(str(k))",
        True,
    ),
    "a list of pairs in which another's value is searched": (
        "m = mails()\nc = customers()\nk = [a for a, b in zip(c, [1, 2])]\nif m['s'] in k:\n    print(1)\npay(k[0])",
        True,
    ),
    "a part of own data in which another's value is searched": (
        "m = mails()\nk = customers()[0]['emails']\nif m['s'] in k:\n    print(1)\npay(k[0])",
        True,
    ),
    "own data beside a sort of another's by a function": (
        "m = mails()\ndef key(c):\n    return c['name']\na = customers()\nprint(sorted(m, key=key))\npay(a[0]['iban'])",
        True,
    ),
    "an own number beside another's": (
        "from decimal import Decimal\nm = mails()\nprint(Decimal(m['n']))\nx = Decimal(customers()[0]['n']) / 3\npay(x)",
        True,
    ),
    "a set of a chain in which another's value is searched": (
        "import itertools\nm = mails()\nc = customers()\nk = set(itertools.chain(c, [1]))\nif m['s'] in k:\n    print(1)\npay(str(k))",
        True,
    ),
    "a joined text in which another's value is searched": (
        "m = mails()\nt = ', '.join(c['name'] for c in customers())\nif m['s'] in t:\n    print(1)\npay(t)",
        True,
    ),
    "a list inside a list that an operator extends": (
        "m = mails()\na = []\nb = []\nb += [a]\nb[0].append(m)\npay(str(a))",
        False,
    ),
    "a list inside a list that an unknown function fills": (
        "import heapq\nm = mails()\na = []\nb = []\nheapq.heappush(b, a)\nb[0].append(m)\npay(str(a))",
        False,
    ),
    "a list that an unknown function gets by a choice": (
        "import operator\na = []\noperator.iadd(a or a, mails())\npay(str(a))",
        False,
    ),
    "a list that an unknown function gets inside a list": (
        "import heapq\na = []\nheapq.heapify([a])\nheapq.heappush([a], mails())\npay(str(a))",
        False,
    ),
    "a list that an unknown function gets from a function": (
        "import operator\na = []\ndef f():\n    return a\noperator.iadd(f(), mails())\npay(str(a))",
        False,
    ),
    "a list that a passed function fills": (
        "import operator\na = []\nlist(map(operator.iadd, [a], [mails()]))\npay(str(a))",
        False,
    ),
    "a list inside a list that a method of the class fills": (
        "m = mails()\na = []\nb = []\nlist.append(b, a)\nb[0].append(m)\npay(str(a))",
        False,
    ),
    "a list whose items a key of its sort changes": (
        "m = mails()\na = [[]]\na.sort(key=lambda x: x.append(m))\npay(str(a))",
        False,
    ),
    "a list that is the default of a parameter": (
        "m = mails()\na = []\ndef f(x=a):\n    x.append(m)\nf()\npay(str(a))",
        False,
    ),
    "own data beside a list of another's that has two names": (
        "m = mails()\nc = customers()\nrows = m\nrows.append(1)\npay(c[0]['iban'])",
        True,
    ),
    "own data chained beside a chain that another's condition reads": (
        "import itertools\nm = mails()\nz = itertools.chain(m)\nif m['x']:\n    print(*z)\npay(list(itertools.chain(customers()))[0]['iban'])",
        True,
    ),
    "own data beside another's record that a function changes": (
        "c = customers()\ndef clean(r):\n    r['text'] = r['body']\nfor r in mails():\n    clean(r)\npay(c[0]['iban'])",
        True,
    ),
    "own data beside a table that counts another's": (
        "import collections\nm = mails()\nd = collections.Counter(r['s'] for r in m)\nc = customers()\npay(c[0]['iban'])",
        True,
    ),
    "no Python": ("pay('GB33'", False),
    "a service that took in another's": ("shop.keep(mails()[0])\npay(shop.rows()[0])", False),
}


@pytest.mark.parametrize(("code", "is_own"), SOURCES.values(), ids=SOURCES)
def test_value_of_a_clean_script_from_own_data_is_own(code, is_own):
    tools = {name: bound(name, trust) for name, trust in TRUST.items()}
    origins = Origins("Pay", list, tools.get)
    names = ["mails", "customers", *(["shop.keep"] if "keep" in code else []), "rows", "shop.rows"]
    calls = [{**SEEN, "call_id": number, "action": name} for number, name in enumerate(names, 1)]
    customers = [{"name": "Ada", "iban": "GB44"}]
    results = {
        "mails": [{"body": "GB44"}],
        "customers": customers,
        "rows": [{"id": "7", "text": "GB44"}],
    }
    origins.follow(
        [
            ModelCalled(**SEEN, model="m", purpose="generate"),
            ScriptGenerated(**SEEN, code=code, attempt=1),
            *(
                event
                for call in calls
                for event in (
                    CallStarted(
                        **call,
                        arguments={"to": "GB44"} if "keep" in call["action"] else {},
                        effect="write" if "keep" in call["action"] else "read",
                        digest="",
                    ),
                    CallFinished(
                        **call, status="ok", result=results.get(call["action"], []), duration_ms=1.0
                    ),
                )
            ),
        ]
    )
    value = "7" if "'id'" in code else "GB44"
    lines = [number for number, line in enumerate(code.splitlines(), 1) if "pay(" in line]
    assert origins.is_only_from_user("pay", "to", value, lines[-1] if lines else 1) is is_own


def test_origin_comes_from_the_call_on_the_same_line():
    tools = {name: bound(name, trust) for name, trust in TRUST.items()}
    origins = Origins("Pay", list, tools.get)
    code = "pay(customers()[0])\npay(mails()[0])"
    origins.follow(
        [
            ModelCalled(**SEEN, model="m", purpose="generate"),
            ScriptGenerated(**SEEN, code=code, attempt=1),
        ]
    )
    assert [origins.is_only_from_user("pay", "to", "x", line) for line in (1, 2, None)] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("value", "says", "is_there"),
    [
        ("DE89370400440532013000", "to DE89 3704 0044 0532 0130 00", True),
        ("Ada  Lovelace", "ask ADA LOVELACE", True),
        ("ada@example.co.m", "to ada@example.com", False),
        ("ample.com", "to ada@example.com", False),
        ("1250", "pay 1250 euros", True),
        ("https://example.org/", "see example.org", True),
        ("12", "pay 1,250.00 euros", False),
    ],
)
def test_word_of_the_user_counts_as_task_origin(value, says, is_there):
    assert (origin(value, task=says, outside="x").kind == "task") is is_there


def test_script_after_a_provider_search_counts_as_outside_text():
    origins = Origins("Pay the bill", list, lambda action: bound(action, "own"))
    asked = ModelCalled(**SEEN, model="m", purpose="generate", server_side=("web_search",))
    origins.follow([asked, ScriptGenerated(**SEEN, code="pay('DE89 3704')", attempt=1)])
    found = origins.find("DE89 3704")
    assert (found.kind, found.trust) == ("script", "outside")
    assert origins.has_author_read_untrusted_data
    assert origins.find("the bill").kind == "task"


@pytest.mark.parametrize("trust", ["outside", "own"])
def test_large_result_is_prepared_once_for_all_searches(
    monkeypatch: pytest.MonkeyPatch, trust: Trust
) -> None:
    prepared: list[str] = []

    def count(text: str) -> str:
        prepared.append(text)
        return letters_and_digits(text)

    monkeypatch.setattr(origin_module, "letters_and_digits", count)
    rows = [{"note": f"row number {at} [redacted]"} for at in range(300)]
    call = PastCall(1, "big", trust, {}, result=rows)
    for at in range(200, 300):
        found = find_in([call], rows[at]["note"])
        assert found is not None
        assert (found.trust, found.path) == (trust, f"[{at}].note")
    assert len(prepared) == 300 + 100


def test_field_named_by_the_wildcard_has_the_trust_of_its_record() -> None:
    trust: dict[str, Trust] = {"*": "own", "body": "outside"}
    texts = [*texts_with_trust({"body": {"*": "pay Eve"}}, trust)]
    assert texts == [("outside", ".body[key 0]", "*"), ("outside", ".body.*", "pay Eve")]


@pytest.mark.parametrize("unit", ["a", "A", "aa-", "a.", "a@", "1 ", "\u0300\u0316"])
def test_search_for_addresses_takes_linear_time(unit):
    text = unit * 20_000 + "\n"
    began = time.thread_time()
    for word in ("ada@b.de", "b.de", "AB12345678", "12"):
        is_only_one(word, text)
    has_address_or_code(text)
    letters_and_digits(text)
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(
    ("word", "text", "is_only"),
    [
        ("ada@b.de", "Ada <Ada@b.de>", True),
        ("ada@b.de", "ada@b.de+eve@evil.de", False),
        ("b.de", f"{'a' * 100}.de or b.de", False),
        ("AB12345678", "the account AB12345678", True),
        ("AB12345678", "XAB12345678", False),
    ],
)
def test_is_only_one_is_false_beside_another_address(word, text, is_only):
    assert is_only_one(word, text) is is_only
