"""The examples run, without a key and without a network, and print what is written here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.workspace import ROOT

pytestmark = pytest.mark.docs

EXAMPLES = ROOT / "examples"
PRINTS = {
    "custom_tool.py": """\
There are 4 lamps; three of them cost 60.00 euros.
there is no sofa; there are: lamp, desk
  stock({'product': 'lamp'}) ok
  price({'product': 'lamp', 'pieces': 3}) ok
  stock({'product': 'sofa'}) error
""",
    "own_connection.py": """\
{'tool': 'desk', 'description': "The support desk's tickets.", 'methods': ['find', 'close'], 'total': 2}
open: ['No coffee']
closed: ['The lamp flickers']
there is no ticket 99
the model saw the token: False
""",
    "approval.py": """\
asked: pay(to='Ann', euros=20.0) because 'an open bill'
asked: pay(to='Bob', euros=5000.0) because 'an open bill'
asked: pay(to='Mallory', euros=1.0) because 'an open bill'
Ann got 20.00
Bob got 100.00
pay was rejected: we do not know them
['ok', 'ok', 'rejected']
""",
    "recorded_model.py": """\
lamp: 4
name,pieces
lamp,4
670 tokens, 0.0001 USD
ERR-LLM-005
""",
    "sort_papers.py": """\
databases: a1.md, Trees that merge
databases: c3.md, Counting rows
networks: b7.md, Fair queues
sorted/databases/a1.md
sorted/databases/c3.md
sorted/index.md
sorted/networks/b7.md
""",
    "review_repository.py": """\
commits: Prices are higher, A price
1 file changed, 2 insertions(+), 1 deletion(-)
to be done: repo/shop.py:2 # later: rebates
git.run is refused: blocked: 'git push' matches no rule
""",
    "ask_documents.py": """\
# Desks Desks are built on order, and cannot be given back (docs/desks.md)
They can be given back for 30 days (docs/lamps.md)
3 workers, 0.04 USD
""",
    "frameworks/programs.py": """\
3 [3, 3] (<TaskState.DONE: 'done'>, 3)
['open_orders', 'answer', 'done']
3
""",
}
NO_NETWORK = """
import os, runpy, socket, sys
connect = socket.socket.connect
def connect_here(own, address):
    assert own.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1"), address
    return connect(own, address)
socket.socket.connect = connect_here
sys.path.insert(0, os.path.dirname(sys.argv[1]))  # as Python does for a program
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_examples_are_all_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {n for n in PRINTS if "/" not in n}
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in readme for name in PRINTS)


@pytest.mark.parametrize("name", list(PRINTS))
def test_example_prints_the_documented_output(name: str, tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DELF_")}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", NO_NETWORK, EXAMPLES / name],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == PRINTS[name]
    message = [line for line in result.stderr.splitlines() if "scripts run in the sand" not in line]
    assert message == []
    assert list(tmp_path.iterdir()) == []
