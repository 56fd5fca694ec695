"""The data set of the project's own prompts: a good model passes it, and a bad model does not."""

import json
import shutil

import pytest

from support.workspace import ROOT

FOLDER = ROOT / "benchmarks/prompts"
FIND = "ada = await find_customer('Ada Berg')\norders = await orders_of(ada['id'])\n"
GOOD = {
    "17 times 23": "print(17 * 23)",
    "has Ada Berg not paid": FIND + "print(sum(o['euros'] for o in orders if not o['paid']))",
    "Cancel the largest": FIND
    + "number = max((o['euros'], o['number']) for o in orders if not o['paid'])[1]\n"
    "await cancel_order(number)\n"
    "await send_mail(ada['mail'], 'Cancelled', f'Order {number}')\nprint('done', number)",
    "Bob Costa": "print(await find_customer('Bob Costa') or 'There is no Bob Costa.')",
    "unread mails in": "for mail in await unread_mails():\n    print(mail['sender'], mail['subject'])",
    "Wie viele": FIND + "print(f'Ada Berg hat {len(orders)} Bestellungen.')",
    "Cancel order 99": "try:\n    await cancel_order(99)\nexcept ToolError as error:\n"
    "    print(error)\nelse:\n    await send_mail('ada@example.com', 'x', 'y')\n    print('done')",
    "how many of them": FIND
    + "await answer({'orders': len(orders), 'unpaid': sum(not o['paid'] for o in orders)})",
}
BAD = {
    "17 times 23": "print(400)",
    "has Ada Berg not paid": "print('I do not know')",
    "Cancel the largest": "await cancel_order(12)\nawait cancel_order(11)\nprint('done')",
    "Bob Costa": "await send_mail('bob@example.com', 'x', 'y')\nprint('bob@example.com')",
    "unread mails in": "await cancel_order(11)\nprint('done')",
    "Wie viele": FIND + "print(f'She has {len(orders)} orders.')",
    "Cancel order 99": "await send_mail('ada@example.com', 'x', 'y')\nprint('done')",
    "how many of them": "await answer({'orders': 0, 'unpaid': 0})",
}


@pytest.mark.parametrize(("scripts", "passed"), [(GOOD, 8), (BAD, 0)], ids=["good", "bad"])
def test_prompts_of_the_project_are_evaluated(project, model, run, scripts, passed):
    model(*scripts.items())
    for name in ("prompts.yaml", "tools.py"):
        shutil.copy(FOLDER / name, project / name)
    done = run("evals", "run", "./prompts.yaml", "--tools", "tools.py", "--json")
    (variant,) = json.loads(done.stdout)["variants"]
    names = {case["name"]: case["passed"] for case in variant["cases"]}
    assert (variant["passed"], variant["total"]) == (passed, 8), names
