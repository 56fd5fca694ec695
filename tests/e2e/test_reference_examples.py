"""The reference's own examples run with delf in its place, but for those that are wrong themselves.

A block is one of the reference's documentation, with its placeholders filled in and a check after it. Its
model is served by script, its database is SQLite or a real PostgreSQL, its Google a server on loopback,
its specification a file. A person at the terminal says yes to every question.
"""

from __future__ import annotations

import email.message
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from delf_sandbox_docker.backend import DEFAULT_BASE
from support.dockerd import DockerEngine
from support.google import GoogleServer
from support.google.fixtures import USER, credentials, google
from support.openai_server import OpenAIServer, Reply
from support.openapi_specs import spec
from support.postgres import PASSWORD, PostgresServer
from support.postgres import USER as ROLE
from support.program import environment
from support.terminal import TerminalProcess
from support.workspace import ROOT

from .reference_examples import examples, install_model, program

__all__ = ["credentials", "google"]

FILE: Final = ROOT.parent / "shared/data/compat/examples.py"
RUNNER: Final = Path(__file__).with_name("reference_examples.py")
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not FILE.exists(), reason="needs ../shared"),
]

WRONG: Final = {
    36: "reads a pending request as a dict; a request is an object, and to_dict() makes a dict",
    27: "drops what with_settings returns: a configuration never changes",
    78: "reaches into the reference's own engine; delf has Agent(rerun_count=1)",
    97: "drops what with_settings returns, too",
    201: "has an argument that the reference's own documentation has not: enable_prefilter",
}
"""Blocks that cannot work as they are written, and why."""

MEMORY: Final = "from delf import Memory\nmemory = Memory(namespace='kb', embedding_model='off')"
MORE: Final[dict[int, dict[str, Any]]] = {
    45: {
        "pre": "from delf import Agent\nagent = Agent(llm='gpt-5.5')",
        "rep": [
            ("from fastapi import FastAPI", "from starlette.applications import Starlette"),
            ("FastAPI()", "Starlette()"),
        ],
        "check": "assert app.routes",
    },
    49: {},
    50: {"pre": f"open('knowledge_base.md', 'w').write('Tea is at five.')\n{MEMORY}"},
    100: {"pre": MEMORY},
    101: {"rep": [(", DelfhosToolWarning", "")]},  # a warning in the log, as docs/migrating says
}
"""Blocks without a program of their own: what goes before, and what is to be seen."""

OF_DOCKER: Final = (59, 60, 66)
SEND: Final = "print(await gmail.send('{}', 'News', 'Hello'))"
SCRIPTS: Final[dict[int, list[str]]] = {
    3: ["print((await websearch.search('AI trends'))['answer'])"],
    5: ["print(await gmail.read(MAIL))"],
    6: [SEND.format("alice@example.com")],
    17: ["r = await sql.query('select 1 as a')\nprint(await sheets.create('Revenue Q3'), r)"],
    18: ["print(await drive.search())"],
    19: ["print(await docs.create('Python Packaging Guide', 'Use wheels.'))", "print('free')"],
    30: ["print(await gmail.search('is:unread'))", SEND.format("alice@example.com")],
    34: [SEND.format("team@company.com")],
    35: [SEND.format("ada@example.com"), *[SEND.format("delete@example.com")] * 2],
    37: ["print(await gmail.search())"],
    46: ["print(await personal_email.send('ada@example.com', 'x', 'y'))"],
}
"""The model's answers where a connection of delf has other arguments than the reference's."""
CHECKS: Final = {
    6: "assert result.status, result.error",
    14: "assert agent.run('x').status",
    47: "assert r.trace.tools_chosen_by == 'all'",  # so few tools are all shown
}
ELLIPSES: Final = [
    ("WebSearch(...)", 'WebSearch(llm="gemini-3.5-flash")'),
    *(
        (f"{kind}(...)", f'{kind}(oauth_credentials="...")')
        for kind in ("Gmail", "Sheets", "Drive")
    ),
]
GOOGLE: Final = ("gmail", "drive", "sheets", "docs", "calendar", "work_email", "personal_email")
FOUND: Final = {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"text": "Agents that write code."}]},
            "finishReason": "STOP",
            "groundingMetadata": {
                "groundingChunks": [{"web": {"uri": "https://a.test/x", "title": "a.test"}}]
            },
        }
    ],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
}
PETS: Final = spec(
    {
        "/pets": {
            "get": {"operationId": "list_pets", "responses": {"200": {"description": "ok"}}},
            "post": {"operationId": "add_pet", "responses": {"200": {"description": "ok"}}},
        },
        "/pets/{id}": {
            method: {
                "operationId": name,
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
                ],
                "responses": {"200": {"description": "ok"}},
            }
            for method, name in (("get", "get_pet_by_id"), ("delete", "delete_pet"))
        },
    },
    servers=[{"url": "http://127.0.0.1:9/v1"}],
)


def blocks() -> dict[int, dict[str, Any]]:
    return examples(FILE) if FILE.exists() else {}


def prepared(folder: Path, chosen: dict[int, dict[str, Any]], **environ: str) -> None:
    """A folder with all that these blocks need."""
    install_model(folder / "site")
    for name in ("PETSTORE", "STRIPE", "openapi.yaml"):
        (folder / name).write_text(json.dumps(PETS))
    data = folder / "DATA"
    data.mkdir()
    (data / "sales_q3.csv").write_text("product,pieces\nlamp,4\n")
    (data / "mapping.json").write_text("{}")
    import openpyxl

    book = openpyxl.Workbook()
    book.active["A1"] = "product"
    book.save(data / "product_catalog.xlsx")
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.executescript(
            "CREATE TABLE users (id INTEGER, name TEXT); INSERT INTO users VALUES (1, 'Ada')"
        )
    given = {"DB": f"sqlite:///{folder}/shop.db", "FINNHUB_API_KEY": "k", **environ}
    found = [
        {
            "n": number,
            "program": program({**block, "check": CHECKS.get(number, block["check"])}),
            "scripts": SCRIPTS.get(number, block["scripts"]),
            "environ": given,
        }
        for number, block in chosen.items()
    ]
    (folder / "blocks.json").write_text(json.dumps(found))


def failures(folder: Path) -> dict[int, str]:
    """Run the blocks of a folder at a terminal; why each failed that did."""
    env = environment(PYTHONPATH=str(folder / "site"))
    with TerminalProcess([RUNNER, folder], env=env, cwd=folder) as terminal:
        status = terminal.answer({"? help\n> ": "a\n", "› ": "\x04"}, 200)
    assert status == 0, terminal.text
    lines = (folder / "results.jsonl").read_text().splitlines()
    ended: dict[int, int] = dict(map(json.loads, lines))
    assert len(ended) == len(json.loads((folder / "blocks.json").read_text()))
    reported = {number: folder / f"failed-{number}.txt" for number in ended}
    return {
        number: reported[number].read_text() if reported[number].exists() else f"status {status}"
        for number, status in ended.items()
        if status
    }


@pytest.mark.slow
@pytest.mark.soak
def test_reference_example_runs_with_delf_connections(
    tmp_path: Path,
    google: GoogleServer,
    credentials: str,
    postgres_server: PostgresServer,
    openai_server: Callable[..., OpenAIServer],
) -> None:
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "bob@example.com", USER, "News"
    message.set_content("Hello.")
    google.gmail.deliver(USER, message.as_bytes())
    (mail,) = google.gmail.box(USER).mails
    for person in ("alice@example.com", "team@company.com", "delete@example.com"):
        google.gmail.box(person)
    chosen = {
        number: block
        for number, block in blocks().items()
        if block["kind"] in ("run", "standin") and number not in OF_DOCKER
    }
    words = ('namespace="alice_support_agent"', 'namespace="ada", embedding_model="off"')
    chosen[14] = {**blocks()[14], "rep": [words]}
    chosen |= {number: {**blocks()[number], **more} for number, more in MORE.items()}
    assert len(chosen) >= 41 + 20 + len(MORE)
    with postgres_server.database() as database:
        postgres_server.run("CREATE TABLE users (id int)", database)
        values = [
            ("port=55432", f"port={postgres_server.port}"),
            ('user="postgres"', f"user={ROLE!r}"),
        ]
        values += [('"secret"', repr(PASSWORD)), ('database="postgres"', f"database={database!r}")]
        chosen[15] = {**chosen[15], "rep": [*chosen[15]["rep"], *values]}
        for number, block in chosen.items():
            names = ('client_secrets.json"', 'work_oauth.json"', 'personal_oauth.json"')
            logins = [*((name, f'{credentials}"') for name in names)]
            logins += [('oauth_credentials="..."', f'oauth_credentials="{credentials}"')]
            pre = block["pre"].replace(
                'oauth_credentials="x"', f'oauth_credentials="{credentials}"'
            )
            rep = [*ELLIPSES, *block["rep"], *logins]
            chosen[number] = {**block, "pre": pre, "rep": rep}
        SCRIPTS[5] = [script.replace("MAIL", repr(mail)) for script in SCRIPTS[5]]
        places = {f"DELF_{name.upper()}_BASE_URL": google.url for name in GOOGLE}
        search = openai_server(lambda _: Reply(body=json.dumps(FOUND).encode()))
        places["DELF_WEBSEARCH_BASE_URL"] = search.base_url.removesuffix("/v1")
        # The examples name specifications on the web, whose servers may get the keys; here they are files.
        places |= dict.fromkeys(
            ("DELF_OPENAPI_SERVERS", "DELF_STRIPE_SERVERS", "DELF_PETSTORE_SERVERS"),
            "http://127.0.0.1:9",
        )
        places["GOOGLE_API_KEY"] = "key-of-nobody"
        prepared(tmp_path, chosen, **places)
        failed = failures(tmp_path)
    assert {number: why for number, why in failed.items() if number not in WRONG} == {}
    assert set(failed) == set(WRONG), "these work: say nothing of them"


@pytest.mark.services
def test_docker_reference_examples_run(tmp_path: Path, docker_engine: DockerEngine) -> None:
    repository, _, tag = DEFAULT_BASE.partition(":")
    docker_engine.client().tag(docker_engine.base_image, repository, tag)  # as if it was pulled
    prepared(
        tmp_path,
        {number: blocks()[number] for number in OF_DOCKER},
        DOCKER_HOST=docker_engine.url,
    )
    failed = failures(tmp_path)
    assert not failed, "\n".join(failed.values())
