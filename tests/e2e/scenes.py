"""Scenes at a terminal for ``docs/terminal.md``: played in tmux for the page, on a plain one in tests.

``cd tests && ../.venv/bin/python -m e2e.scenes`` plays them all and writes the page's views again;
names after it play only those. Nothing of the machine stays in a view: see ``_without_machine``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from support.program import DELF, delf, write_recording
from support.workspace import ROOT

from .tmux import Tmux

PAGE: Final = ROOT / "docs/terminal.md"
COLUMNS: Final = 80
PROMPT: Final = "$ "
CHAT_PROMPT: Final = "› "
_VIEW: Final = re.compile(
    r"(<!-- terminal: ([\w-]+) -->\n```text\n).*?(^```$)", re.DOTALL | re.MULTILINE
)
_SECONDS: Final = 30.0

TOOLS: Final = '''
import os
import signal
from pathlib import Path

from delf import Connection, action


class Shop(Connection):
    """The stock and the orders of a small tea shop."""

    @action(effect="read")
    def stock(self) -> dict[str, int]:
        """Pieces in stock by product."""
        return {"Gyokuro Asahi": 12, "Jasmine Pearls": 7, "Rooibos Vanilla": 90}

    @action(effect="read")
    def sold_a_week(self, product: str) -> float:
        """Pieces sold a week."""
        if Path("gate").exists():
            Path("gate").read_text()  # until somebody writes to it
        return {"Gyokuro Asahi": 4.3, "Jasmine Pearls": 4.5}.get(product, 2.0)

    @action(effect="write")
    def order(self, product: str, pieces: int) -> str:
        """Order from the supplier; the order's number."""
        if Path("power-cut").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return "PO-117"

    @action(effect="irreversible")
    def write_to(self, customer: str, text: str) -> str:
        """Send a customer a letter."""
        return f"sent to {customer}"


shop = Shop(name="shop")
'''
STOCK: Final = """
stock = await shop.stock()
print("| Product | In stock | Lasts |\\n|---|--:|--:|")
for product, pieces in stock.items():
    weeks = pieces / await shop.sold_a_week(product, desc=f"how fast {product} sells")
    if weeks < 4:
        print(f"| {product} | {pieces} | {weeks:.1f} weeks |")
"""
LETTER: Final = """
text = "Dear Ada,\\nyour tea was sent today.\\nThe shop"
print(await shop.write_to("Ada", text, desc="tell Ada that her tea is on its way"))
"""
ORDER: Final = """
for product, pieces in (await shop.stock()).items():
    if pieces < 20:
        print(product, await shop.order(product, 40))
"""
ONE_ORDER: Final = 'print("ordered:", await shop.order("Jasmine Pearls", 40))'
NOT_SENT: Final = 'print("Nothing was sent: it leaves tomorrow.")'
ORDER_AND_WAIT: Final = f"{ONE_ORDER}\nimport asyncio\nawait asyncio.sleep(3600)"
WRITE: Final = "Tell Ada that her tea was sent."
SOLD_OUT: Final = "Which products are nearly sold out?"


class Terminal(Protocol):
    """What a scene is played on: a shell in the scene's folder."""

    def send(self, text: str) -> None:
        """Type."""
        ...

    def expect(self, wanted: str) -> object:
        """Wait until a text is shown."""
        ...


@dataclass(frozen=True)
class Scene:
    """A scene.

    Args:
        play: Types and waits, given the terminal and the folder; yields where the view is taken.
        shows: What must be in the view.
        scripts: What the model answers.
    """

    play: Callable[[Terminal, Path], Iterator[None]]
    shows: Sequence[str]
    scripts: Sequence[str] = ()


def _run(task: str, *flags: str) -> str:
    return " ".join(["delf run", f'"{task}"', "--tools tools.py", *flags, "\n"])


def _is_done(terminal: Terminal) -> None:
    """The task is over, and the shell waits."""
    terminal.expect("done · ")
    terminal.expect(PROMPT)


def _answer_with(terminal: Terminal, key: str) -> None:
    """Press a key at the question about a call or a script."""
    terminal.expect("? help\n> ")
    terminal.send(f"{key}\n")


def _approved(task: str, *flags: str) -> Callable[[Terminal, Path], Iterator[None]]:
    """A task that asks once, and is allowed to."""

    def play(terminal: Terminal, here: Path) -> Iterator[None]:
        terminal.send(_run(task, *flags))
        _answer_with(terminal, "a")
        _is_done(terminal)
        yield

    return play


def _live(terminal: Terminal, here: Path) -> Iterator[None]:
    os.mkfifo(here / "gate")
    terminal.send(_run(SOLD_OUT))
    terminal.expect("how fast Gyokuro Asahi sells")
    yield
    with (here / "gate").open("w") as gate:
        (here / "gate").unlink()
        gate.write("open")
    _is_done(terminal)


def _answer(terminal: Terminal, here: Path) -> Iterator[None]:
    terminal.send(_run(SOLD_OUT))
    _is_done(terminal)
    yield


def _interrupted(terminal: Terminal, here: Path) -> Iterator[None]:
    (here / "power-cut").touch()
    arguments = ("Order 40 Jasmine Pearls.", "--tools", "tools.py", "--approve", "all")
    delf("run", *arguments, cwd=here)
    (here / "power-cut").unlink()
    (task,) = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
    terminal.send(f"delf resume {task['task_id'][:9]}\n")
    _answer_with(terminal, "h")
    terminal.expect("empty for null): ")
    terminal.send('"PO-117"\n')
    _is_done(terminal)
    yield


def _refused(terminal: Terminal, here: Path) -> Iterator[None]:
    terminal.send(_run(WRITE))
    _answer_with(terminal, "r")
    terminal.expect("reason (may be empty): ")
    terminal.send("it leaves tomorrow\n")
    _is_done(terminal)
    yield


def _edited(terminal: Terminal, here: Path) -> Iterator[None]:
    terminal.send(_run(WRITE))
    _answer_with(terminal, "e")
    terminal.expect("empty when done: ")
    terminal.send("customer\n")
    terminal.expect("empty to keep it: ")
    terminal.send("Eve\n")
    terminal.expect("1 customer = 'Eve'")
    terminal.send("\n")
    terminal.expect("│ customer = 'Eve'")
    terminal.send("a\n")
    _is_done(terminal)
    yield


def _stopped(terminal: Terminal, here: Path) -> Iterator[None]:
    terminal.send(_run("Order 40 Jasmine Pearls, and wait for them."))
    _answer_with(terminal, "a")
    terminal.expect("running the script · 1 call")
    terminal.send("\x03")
    terminal.expect("stopped · ")
    terminal.expect(PROMPT)
    yield


def _chat(terminal: Terminal, here: Path) -> Iterator[None]:
    terminal.send("delf chat --tools tools.py\n")
    terminal.expect("/help")
    terminal.expect(CHAT_PROMPT)
    terminal.send(f"{SOLD_OUT}\r")
    terminal.expect("done · ")
    terminal.expect(CHAT_PROMPT)
    terminal.send("/cost\r")
    terminal.expect("tokens in")
    terminal.expect(CHAT_PROMPT)
    terminal.send("\x04")
    terminal.expect(PROMPT)
    yield


def _runs(terminal: Terminal, here: Path) -> Iterator[None]:
    for task in (SOLD_OUT, "Order what is nearly sold out."):
        delf("run", task, "--tools", "tools.py", "--approve", "all", cwd=here)
    terminal.send("delf runs list\n")
    terminal.expect("Which products")
    terminal.expect(PROMPT)
    (_, first) = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
    terminal.send(f"delf runs show {first['task_id'][:9]}\n")
    terminal.expect("2.8 weeks")
    terminal.expect(PROMPT)
    yield


def _approvals(terminal: Terminal, here: Path) -> Iterator[None]:
    command = [DELF, "run", "Tell Ada that her tea was sent.", "--tools", "tools.py"]
    waiting = subprocess.Popen(
        [*command, "--wait-approvals"],
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    try:
        name = next(
            line.split()[-1] for line in waiting.stderr if line.startswith("approval needed")
        )
        terminal.send("delf approvals list\n")
        terminal.expect("shop.write_to(customer=")
        terminal.expect(PROMPT)
        terminal.send(f"delf approvals show {name[:8]}\n")
        terminal.expect("your tea was sent today.")
        terminal.expect(PROMPT)
        terminal.send(f"delf approvals approve {name}\n")
        terminal.expect("approved: shop.write_to")
        terminal.expect(PROMPT)
        waiting.wait(_SECONDS)
    finally:
        waiting.kill()
        waiting.communicate()
    yield


def _doctor(terminal: Terminal, here: Path) -> Iterator[None]:
    terminal.send("delf doctor\n")
    terminal.expect("a task can run")
    terminal.expect(PROMPT)
    yield


SCENES: Final[Mapping[str, Scene]] = {
    "live": Scene(_live, ["sandbox local (process)", "running the script · "], [STOCK]),
    "answer": Scene(_answer, ["Product", "Jasmine Pearls", "1.6 weeks", "4 tool calls"], [STOCK]),
    "approval": Scene(
        _approved("Tell Ada that her tea was sent."),
        [
            "approval needed · shop.write_to · irreversible, it cannot be undone",
            "the script says: tell Ada",
            "a approve · r reject · e edit",
            "sent to Ada",
        ],
        [LETTER],
    ),
    "refused": Scene(
        _refused,
        ["reason (may be empty): it leaves tomorrow", "rejected", "Nothing was sent"],
        [LETTER, NOT_SENT],
    ),
    "edited": Scene(
        _edited, ["customer, new value as text", "edited", "sent to Eve", "changed:"], [LETTER]
    ),
    "stopped": Scene(
        _stopped,
        ["changed before it was stopped:", "shop.order(product=", "stopped · ", "delf runs show"],
        [ORDER_AND_WAIT],
    ),
    "plan": Scene(
        _approved("Order what is nearly sold out.", "--confirm-mode plan"),
        ["it may call, as often as it likes: shop.order", "│     if pieces < 20:", "PO-117"],
        [ORDER],
    ),
    "interrupted": Scene(
        _interrupted,
        ["shop.order was interrupted; make it again?", "h it did happen", "ordered: PO-117"],
        [ONE_ORDER],
    ),
    "chat": Scene(_chat, ["conversation ", "1.6 weeks", "1 task · "], [STOCK]),
    "runs": Scene(_runs, ["state", "took", "done", "shop.sold_a_week", "calls"], [STOCK, ORDER]),
    "approvals": Scene(
        _approvals, ["waits", "irreversible", "Dear Ada,", "approved: shop.write_to"], [LETTER]
    ),
    "doctor": Scene(_doctor, ["✓ python", "✓ model", "✓ task", "a task can run"]),
}


# -- where they are played ----------------------------------------------------------------------


def shell(home: Path) -> tuple[list[str], dict[str, str], Path]:
    """A shell for a scene: its command, all of its environment, its folder."""
    here = home / "shop"
    here.mkdir(parents=True)
    (here / "tools.py").write_text(TOOLS)
    (here / "delf.toml").write_text(
        '[agent]\nllm = "recorded:answers.jsonl"\nsandbox = "local"\n', encoding="utf-8"
    )
    path = f"{DELF.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    names = {"HOME": str(home), "PATH": path, "PS1": PROMPT, "LANG": "C.UTF-8", "TZ": "UTC"}
    names |= {"XDG_DATA_HOME": str(home / ".local/share"), "TERM": "xterm-256color"}
    names |= {"DELF_TRUST": str(here)}
    names |= {
        "HISTFILE": "/dev/null",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "BASH_SILENCE_DEPRECATION_WARNING": "1",
    }
    return ["bash", "--norc", "--noprofile", "-i"], names, here


def prepare(scene: Scene, here: Path) -> None:
    """Let the model know what it answers."""
    write_recording(here / "answers.jsonl", *scene.scripts, usage=_USAGE, cost_usd=0.0004)


_USAGE: Final[Mapping[str, Any]] = {"input_tokens": 812, "output_tokens": 96}


@contextmanager
def _variables(env: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def played_on(
    scene: Scene, terminal: Terminal, here: Path, env: Mapping[str, str]
) -> Iterator[None]:
    """Play a scene; pauses where the view is taken."""
    with _variables(env):
        yield from scene.play(terminal, here)


def view_of(name: str) -> str:
    """Play a scene in tmux; what is on the screen then."""
    scene = SCENES[name]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve() / "ada"
        command, env, here = shell(home)
        prepare(scene, here)
        terminal = Tmux(command, env, here, columns=COLUMNS, prompts=(PROMPT, CHAT_PROMPT))
        try:
            terminal.expect(PROMPT)
            playing = played_on(scene, terminal, here, env)
            next(playing)
            view = terminal.view()
            list(playing)
        finally:
            terminal.close()
        return _without_machine(view, home)


def _without_machine(view: str, home: Path) -> str:
    """A view with the paths of somebody's machine, not of this one."""
    shown = "/home/ada/shop/.venv"
    library = f"{shown}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for real, other in (
        (str(ROOT / "core/src"), library),
        (str(DELF.parent.resolve()), f"{shown}/bin"),
        (str(home), "/home/ada"),
        (tempfile.gettempdir(), "/tmp"),
    ):
        view = view.replace(real, other)
    lines = [line.rstrip() for line in view.split("\n")]
    while lines and lines[-1] in ("", PROMPT.strip()):
        lines.pop()
    return "\n".join(lines)


def views(text: str) -> dict[str, str]:
    """The views of a page by name."""
    return {m[2]: m[0].partition("```text\n")[2].removesuffix("```") for m in _VIEW.finditer(text)}


def main(names: Sequence[str]) -> None:
    """Write the page's views again."""
    text = PAGE.read_text(encoding="utf-8")
    for name in names or SCENES:
        view = view_of(name)
        missing = [part for part in SCENES[name].shows if part not in view]
        if missing:
            raise SystemExit(f"{name} does not show {missing}:\n{view}")

        def put(match: re.Match[str], name: str = name, view: str = view) -> str:
            return f"{match[1]}{view}\n{match[3]}" if match[2] == name else match[0]

        text = _VIEW.sub(put, text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
