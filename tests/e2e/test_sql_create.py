"""``create = true`` of a database connection, from ``delf.toml`` and from a program."""

from pathlib import Path

import pytest

from delf import SQL, Agent
from delf.errors import ConnectionConfigurationError
from support.program import delf, write_recording

pytestmark = pytest.mark.parametrize("kind", ["sqlite", "duckdb"])

SCRIPT = """
await db.write("CREATE TABLE t (a int)")
await db.write("INSERT INTO t VALUES (?)", [7])
print(await db.query("SELECT a FROM t"))
"""


def write_project(folder: Path, kind: str, file: str = "shop.db", more: str = "") -> None:
    (folder / "delf.toml").write_text(
        f'[connections.db]\ntype = "sql"\nurl = "{kind}:///{file}"\ncreate = true\n{more}'
    )


def run(folder: Path, script: str, *flags: str):
    llm = write_recording(folder / "answers.jsonl", script)
    flags = ("--approve", "all", "--set", "agent.retry_count=0", *flags)
    return delf("run", "keep seven", "--llm", llm, *flags, cwd=folder)


def test_create_option_makes_the_file_for_later_tasks(kind, tmp_path):
    write_project(tmp_path, kind)
    done = run(tmp_path, SCRIPT)
    assert (done.returncode, done.stdout) == (0, "[{'a': 7}]\n"), done.stderr
    again = run(tmp_path, 'print(await db.query("SELECT count(*) AS n FROM t"))')
    assert again.stdout == "[{'n': 1}]\n", again.stderr


def test_read_only_script_finds_no_tables_in_a_new_file(kind, tmp_path):
    write_project(tmp_path, kind)
    done = run(tmp_path, "print(await db.schema())")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_sql_connection_with_create_makes_the_database_file(
    kind, tmp_path, scripted_model, delf_host
):
    scripted_model.writes(SCRIPT)
    db = SQL(f"{kind}:///{tmp_path / 'shop.db'}", name="db", create=True, confirm=False)
    options = {"llm": "scripted", "sandbox": "local", "host": delf_host, "retry_count": 0}
    with Agent(tools=[db], **options) as agent:
        assert agent.run("keep seven").text == "[{'a': 7}]"
    assert "no tables" in scripted_model.requests[0].messages[-1].text


def test_sqlite_without_create_needs_the_file(kind, tmp_path):
    write_project(tmp_path, kind)
    text = (tmp_path / "delf.toml").read_text().replace("create = true", "")
    (tmp_path / "delf.toml").write_text(text)
    done = run(tmp_path, SCRIPT)
    assert done.returncode == 2
    assert "or set create = true" in done.stderr
    assert not (tmp_path / "shop.db").exists()


def test_folder_that_does_not_exist_is_an_error(kind, tmp_path):
    write_project(tmp_path, kind, "data/shop.db")
    done = run(tmp_path, SCRIPT)
    assert done.returncode == 2
    assert "there is no folder" in done.stderr
    assert "make the folder" in done.stderr


def test_other_databases_refuse_the_create_option(kind):
    with pytest.raises(ConnectionConfigurationError, match="create is a setting for"):
        SQL("postgresql://ada@localhost/shop", name=kind, create=True)
