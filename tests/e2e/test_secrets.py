"""Planted secrets: whatever is done with them about, none is in anything that delf leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.fixtures import Database
from support.openai_server import OpenAIServer, Reply, Request
from support.program import delf, write_recording

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

SECRETS: Mapping[str, str] = {
    "the model's key": "sk-planted-model-4f81c02e",
    "a header of the model": "planted-header-9d1e77aa31",
    "a connection's token": "planted-token-55bd0c1f9e",
    "a password in a URL": "pLanted_pass-71aa20",
    "a provider's key": "planted-provider-c0ffee42",
    "a key of the environment": "planted-environ-8812fe0b",
}
MODEL, HEADER, TOKEN, PASSWORD, PROVIDER, ENVIRON = SECRETS.values()

TOOLS = f'''
import asyncio, logging, os, sys, warnings
from delf import Connection, ToolException, action, tool

@tool(confirm=False)
def give() -> dict:
    """Give all that it knows."""
    return {{"all": {list(SECRETS.values())!r}, {MODEL!r}: 1}}

@tool(confirm=False)
def fail(how: str) -> str:
    """Fail with all that it knows."""
    text = " ".join({list(SECRETS.values())!r})
    raise (ToolException if how == "said" else RuntimeError)(text)

@tool(confirm=False)
def tell() -> str:
    """Log and warn."""
    logging.getLogger("vendor.http").warning("sent key %s", {MODEL!r})
    logging.getLogger("vendor.http").error("url %s", "postgresql://u:{PASSWORD}@h/db")
    try:
        raise ValueError({TOKEN!r})
    except ValueError:
        logging.getLogger("vendor.http").exception("it failed")
    warnings.warn("token " + {TOKEN!r})
    return "told"

@tool(confirm=False)
def pay_nothing() -> str:
    """Nothing."""
    return ""

@tool(confirm=False)
async def wait() -> None:
    """Let others work."""
    await asyncio.sleep(0.05)

@tool
def pay(note: str) -> str:
    """Pay, if somebody agrees."""
    return f"paid {{note}}"
'''

ANSWERS = "answers.jsonl"
_ATTEMPTS = 4
"""The number of scripts that fail."""

CONFIG = """
[agent]
journal = "sql"
[agent.llm]
model = "{model}"
base_url = "{base_url}"
api_key = "${{MODEL_SECRET}}"
headers = {{ "X-Team" = "Bearer {header}" }}
[agent.providers]
openai = "{provider}"
"""


def scripts_of(request: Request) -> str | Reply:
    """The model's answer, which the task contains: a script, or an error that echoes its key."""
    prompt = request.prompt
    if "echo the key" in prompt:
        return Reply(status=401, error=f"Incorrect API key provided: {MODEL} ({HEADER})")
    for word, script in SCRIPTS.items():
        if f"task {word}" in prompt:
            return fenced(script)
    return fenced("print('nothing')")


def fenced(script: str) -> str:
    """A script as a model answers with it."""
    return f"```python\n{script}\n```"


SCRIPTS = {
    "gives": "all = await give()\nprint(all)\nadd_to_output_files('all.txt', str(all))\nall",
    "says": "await fail('said')",
    "breaks": "await fail('broken')",
    "prints": f"print({MODEL!r}, {TOKEN!r})\nraise ValueError({PASSWORD!r})",
    "tells": "print(await tell())",
    "splits": (
        f"print({TOKEN[:9]!r}, end='')\nprint(await pay_nothing(), {TOKEN[9:]!r}, sep='', flush=True)\n"
        f"print({PASSWORD[:7]!r}, end='', flush=True)\nawait wait()\nprint({PASSWORD[7:]!r})"
    ),
    "pays": f"print(await pay({ENVIRON!r}))",
}


class Place:
    """A project with secrets, and all that was seen of it."""

    def __init__(self, folder: Path, base_url: str, journal_url: str | None) -> None:
        self.folder = folder
        self.base_url = base_url
        self.seen: list[tuple[str, str]] = []
        (folder / "tools.py").write_text(TOOLS)
        self.use_model("m")
        self.env = {
            "MODEL_SECRET": MODEL,
            "API_TOKEN": TOKEN,
            "OTHER_SECRET": ENVIRON,
            "SHOP": f"postgresql://user:{PASSWORD}@127.0.0.1:1/shop",
        }
        if journal_url is not None:
            self.env["DELF_JOURNAL_SQL_URL"] = journal_url

    def use_model(self, name: str) -> None:
        """Configure a model; by its name it is a provider's."""
        text = CONFIG.format(model=name, base_url=self.base_url, header=HEADER, provider=PROVIDER)
        (self.folder / "delf.toml").write_text(text)

    def use_recording(self) -> None:
        """Use a model that imports no provider's library, and notes what it is asked."""
        answers = [
            {"request": {"contains": [f"task {word}"]}, "reply": {"text": fenced(script)}}
            for word, script in SCRIPTS.items()
        ]
        lines = [json.dumps(answer) for answer in answers for _ in range(_ATTEMPTS)]
        (self.folder / ANSWERS).write_text("\n".join(lines))
        self.use_model(f"recorded:{ANSWERS}")

    def task(self, task: str, *flags: str) -> list[str]:
        """The arguments that let a task be done."""
        return ["run", task, "--sandbox", "local", "--tools", "tools.py", "--out", "out", *flags]

    def delf(self, *arguments: str, stdin: str = "") -> Any:
        """Run the program and note what it wrote."""
        done = delf(*arguments, cwd=self.folder, env=self.env, stdin=stdin)
        self.seen.append((f"delf {' '.join(arguments)}: stdout", done.stdout))
        self.seen.append((f"delf {' '.join(arguments)}: stderr", done.stderr))
        return done

    def delf_many(self, *commands: Sequence[str]) -> list[Any]:
        """Run it several times."""
        return [self.delf(*command) for command in commands]

    def leaks(self) -> list[str]:
        """The places in which a secret was seen: outputs, and files that delf wrote."""
        own = {self.folder / name for name in ("tools.py", "delf.toml", ANSWERS)}
        homes = [self.folder, *(Path(os.environ[n]) for n in HOMES if n in os.environ)]
        files = {path for home in homes for path in home.rglob("*") if path.is_file()} - own
        files = {path for path in files if path.suffix != ".pyc"}  # of the project's own tools
        places = [(name, text.encode()) for name, text in self.seen]
        places += [(str(path), path.read_bytes()) for path in sorted(files)]
        return [
            f"{kind} in {name}: {context_of(data, secret)}"
            for name, data in places
            for kind, secret in SECRETS.items()
            if any(form in data for form in forms_of(secret))
        ]


def forms_of(secret: str) -> list[bytes]:
    """The secret, all but its end, and as PostgreSQL shows bytes."""
    return [secret.encode(), secret[:-3].encode(), secret.encode().hex().encode()]


def context_of(data: bytes, secret: str) -> str:
    """The text around the secret."""
    at = max(0, data.find(secret[:-3].encode()) - 150)
    return data[at : at + 220].decode(errors="replace")


def dump(database: Database) -> str:
    """Every row of every table."""
    tables = database.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split()
    assert tables
    return "\n".join(database.run(f'SELECT t::text FROM "{name}" AS t') for name in tables)


HOMES = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(scripts_of) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, server: OpenAIServer, request: pytest.FixtureRequest) -> Iterator[Place]:
    wanted = getattr(request, "param", "sqlite")
    url = request.getfixturevalue("postgres_url") if wanted == "postgresql" else None
    folder = tmp_path / "project"
    folder.mkdir()
    place = Place(folder, server.base_url, url)
    yield place
    if url is not None:
        place.seen.append(("the database", dump(request.getfixturevalue("postgres_database"))))
    place.seen += [("a prompt", item.body.decode()) for item in server.requests]
    assert place.leaks() == []


@pytest.mark.parametrize(
    ("place", "flags"),
    [
        ("sqlite", ("-v", "--debug")),
        ("sqlite", ("--events", "--stream", "--record", "asked.jsonl")),
        ("postgresql", ("--json", "--record", "asked.jsonl")),
    ],
    indirect=["place"],
    ids=["told", "events", "json"],
)
def test_tasks_leak_no_secret(place: Place, flags: tuple[str, ...]) -> None:
    tasks = [*(f"task {word}" for word in SCRIPTS), "echo the key"]
    if "--debug" not in flags:
        place.use_recording()
    done = place.delf_many(*(place.task(task, *flags) for task in tasks))
    ends = dict(zip((*SCRIPTS, "echo"), (each.returncode for each in done), strict=True))
    expected = {"gives": 0, "says": 0, "breaks": 1, "prints": 1, "tells": 0, "splits": 0}
    expected |= {"pays": 1, "echo": 1}
    assert ends == expected


def test_journal_shows_no_secret(place: Place) -> None:
    place.use_recording()
    tasks = [place.task(f"task {word}", "--approve", "all") for word in ("gives", "pays")]
    *_, listed = place.delf_many(*tasks, place.task("echo the key"), ["runs", "list", "--json"])
    names = [task["task_id"] for task in json.loads(listed.stdout)]
    assert len(names) == 3
    shown = [
        ["runs", command, name, *flags]
        for name in names
        for command in ("show", "events", "code")
        for flags in ((), ("--json",))
        if command in ("show", "events") or not flags
    ]
    assert {done.returncode for done in place.delf_many(*shown)} == {0}
    place.delf_many(*(["resume", name, "--debug"] for name in names))


def test_chat_leaks_no_secret(place: Place) -> None:
    lines = "".join(f"task {word}\n" for word in SCRIPTS)
    done = place.delf("chat", "--tools", "tools.py", "--sandbox", "local", stdin=lines)
    assert done.returncode in (0, 1)


def test_unreachable_database_leaks_no_secret(place: Place) -> None:
    place.use_recording()
    with (place.folder / "delf.toml").open("a") as file:
        file.write(f'[connections.shop]\ntype = "sql"\nurl = "{place.env["SHOP"]}"\n')
    commands = (["inspect", "shop"], ["inspect", "shop", "--json"], ["doctor"], ["plugins"])
    first, *_ = place.delf_many(
        place.task("task gives", "--debug"),
        *commands,
        *([*command, "--debug"] for command in commands),
        ["plugins", "--json"],
    )
    assert first.returncode == 1


def test_failing_plugin_leaks_no_secret(place: Place, tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "delf_plugin_broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: delf-plugin-broken\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text("[delf]\nbroken = broken.plugin\n")
    (site / "broken").mkdir()
    (site / "broken" / "plugin.py").write_text(f"raise RuntimeError('no login with {ENVIRON}')\n")
    place.env["PYTHONPATH"] = str(site)
    place.use_recording()
    first, *_ = place.delf_many(
        ["plugins", "--json"], ["plugins"], ["doctor"], ["doctor", "--json"], ["plugins", "--debug"],
        place.task("task gives"), place.task("task gives", "--json"),
    )  # fmt: skip
    assert "no login with [redacted]" in first.stdout


KEPT = "kept-by-others-4711"


def test_unused_connection_leaks_no_secret(place: Place) -> None:
    """Its password is in the file anyway, which a tool of another one may read."""
    password = "of-the-other-database-77"
    (place.folder / "own.db").touch()
    with (place.folder / "delf.toml").open("a") as file:
        file.write('[connections.own]\ntype = "sql"\nurl = "sqlite:///own.db"\n')
        file.write('[connections.other]\ntype = "sql"\n')
        file.write(f'url = "postgresql://u:{password}@nowhere/x"\n')
        file.write('[connections.hub]\ntype = "mcp"\ncommand = "hub"\n')
        file.write(f'env = {{ LICENCE = "{KEPT}-1" }}\n')
        file.write('[connections.weather]\ntype = "openapi"\nspec = "https://nowhere/x"\n')
        file.write(f'params = {{ appid = "{KEPT}-2" }}\ncredentials = {{ own = "{KEPT}-3" }}\n')
    (place.folder / "reader.py").write_text(
        "from pathlib import Path\nfrom delf import tool\n\n"
        "@tool(confirm=False)\ndef read() -> str:\n"
        '    """Read the configuration."""\n'
        "    return Path('delf.toml').read_text()\n"
    )
    recording = write_recording(place.folder / "r.jsonl", "print(await read())")
    options = ("-c", "own", "--tools", "reader.py", "--llm", recording)
    done = delf("run", "x", *options, cwd=place.folder, env=place.env)
    assert done.returncode == 0, done.stderr
    assert "[connections.other]" in done.stdout
    assert password not in done.stdout + done.stderr
    assert KEPT not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f'[agent]\nllm = ["{MODEL}"]\n',
        f'[agent.llm]\nmodel = "m"\napi_key = ["{MODEL}"]\n',
        f'[agent.llm]\nmodel = "m"\napi_kye = "{MODEL}"\n',
        f'[agent.llm]\nmodel = "m"\nheaders = "{HEADER}"\n',
        f'[agent]\nllm = "m"\nproviders = ["{PROVIDER}"]\n',
        f'[agent.llm]\nmodel = "m"\napi_key = "{MODEL}\n',
        f'[connections.shop]\ntype = "sql"\nurl = ["x:{PASSWORD}"]\n',
        f'[connections.shop]\ntype = "sql"\nurl = "nope://u:{PASSWORD}@h/d"\n',
        f'[connections.shop]\ntype = "sql"\nurl = "postgresql://u:{PASSWORD}@h:port/d"\n',
        f'[connections.shop]\ntype = "sql"\nulr = "postgresql://u:{PASSWORD}@h/d"\n',
    ],
)
def test_wrong_configuration_leaks_no_secret(place: Place, text: str) -> None:
    (place.folder / "delf.toml").write_text(text)
    commands = (["run", "x", "--llm", "m"], ["run", "x"], ["inspect", "shop"], ["doctor"])
    place.delf_many(*([*command, "--debug"] for command in commands))
