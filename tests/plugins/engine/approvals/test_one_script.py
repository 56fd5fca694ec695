"""Ways of a stranger's mail to a call within one script: by data, aliases, control and modules.

Each script of ``support/flows/one_script.txt`` makes a call with a value that the mail determines,
also by a choice among own values. Ways that were found to pass are listed here.
"""

import ast
import re
from pathlib import Path

import pytest

from delf_engine.origins.scripts import Scripts
from delf_engine.origins.sources import UNKNOWN, Source

TEXT = (Path(__file__).parents[3] / "support/flows/one_script.txt").read_text("utf-8")
WAYS = dict(part.split("\n", 1) for part in re.split(r"(?m)^=== ", TEXT)[1:])
OWN = {"accounts": [], "account": ["code", "index"]}
CHANGING = {
    "pay": ["iban", "amount"],
    "pay_all": ["payments"],
    "notify": ["to", "level", "public"],
    "book": ["day", "room"],
    "tag": ["item", "label"],
}
DECIDES_ONLY_THE_CALL = {
    "own tool by a foreign dispatch",
}
"""Ways by which the mail decides that a call is made; docs/origins.md lists them as missed."""


@pytest.mark.parametrize("way", WAYS)
def test_value_that_a_mail_determines_within_a_script_is_not_own(way):
    scripts = Scripts({**OWN, **CHANGING, "mails": []}.get)
    scripts.add(WAYS[way])
    calls = [node for node in ast.walk(ast.parse(WAYS[way])) if isinstance(node, ast.Call)]
    sources = [
        scripts.sources(call.func.id, parameter, call.lineno)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in CHANGING
        for parameter in CHANGING[call.func.id]
    ]
    is_seen = not sources or any(
        found is None
        or UNKNOWN in found
        or any(source.action not in OWN for source in found if source.action is not None)
        for found in sources
    )
    assert is_seen is (way not in DECIDES_ONLY_THE_CALL)


def test_variable_changed_at_the_end_of_a_loop_has_the_new_sources():
    scripts = Scripts({"mails": [], "pay": ["to"]}.get)
    # After this script, the second one adds no source, but "to" is no longer only a text.
    scripts.add("found = mails()\nto = ''\nshared = to\nshared = []\nshared.append(found)")
    scripts.add(
        "while True:\n    pay(to=to)\n    to = []\n    shared = to\n    shared.append(found)"
    )
    assert Source("action", "mails") in (scripts.sources("pay", "to", None) or ())


def test_sources_are_the_actions_and_fields_that_flow_into_an_argument():
    scripts = Scripts({"find": [], "pay": ["amount"]}.get)
    scripts.add(
        "total = 0\n"
        "for row in find():\n"
        "    if not row.paid:\n"
        "        total += row.price\n"
        "pay(amount=total)"
    )
    assert scripts.sources("pay", "amount", 5) == {
        Source("action", "find"),
        Source("field", "paid"),
        Source("field", "price"),
    }
