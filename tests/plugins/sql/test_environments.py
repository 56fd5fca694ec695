"""What a shell, a server or a user has set changes no value, and what a server warns of is told."""

from __future__ import annotations

import pytest

from delf.notes import notes_of_call
from plugins.sql.test_sources import POSTGRESQL

pytestmark = pytest.mark.services

VARIABLES = {
    "PGCLIENTENCODING": "LATIN1",
    "PGDATESTYLE": "SQL, DMY",
    "PGOPTIONS": "-c intervalstyle=sql_standard -c bytea_output=escape -c extra_float_digits=-15",
    "PGUSER": "nobody",
    "PGDATABASE": "nothing",
    "PGPASSWORD": "wrong",
    "PYTHONIOENCODING": "latin-1",
    "LC_ALL": "C",
    "http_proxy": "http://127.0.0.1:1",
    "HOME": "/nowhere",
}
SETTINGS = (
    "datestyle = 'German'",
    "intervalstyle = 'iso_8601'",
    "extra_float_digits = -15",
    "client_encoding = 'LATIN1'",
    "bytea_output = 'escape'",
    "standard_conforming_strings = off",
    "search_path = 'nowhere'",
)
QUERY = f"{POSTGRESQL}, 'Grüße 東京' AS greeting, 0.1::float8 / 3 AS tenth"


async def test_postgresql_gives_the_same_in_every_environment(
    postgres_database, open_sql, monkeypatch
):
    wanted = await open_sql(postgres_database).query(QUERY)
    assert wanted[0]["tenth"] == 0.1 / 3
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for setting in SETTINGS:
        postgres_database.run(f"ALTER ROLE CURRENT_USER SET {setting}")
    try:
        assert await open_sql(postgres_database).query(QUERY) == wanted
    finally:
        postgres_database.run("ALTER ROLE CURRENT_USER RESET ALL")


async def test_what_mariadb_did_otherwise_is_told(mariadb_database, open_sql):
    mariadb_database.run(
        "CREATE TABLE t (id int, name varchar(3)); INSERT INTO t VALUES (1, 'abc')"
    )
    mariadb_database.run("SET GLOBAL sql_mode = '', group_concat_max_len = 4")
    try:
        sql = open_sql(mariadb_database, confirm=[])
        with notes_of_call() as notes:
            rows = await sql.query(
                "SELECT group_concat('long' SEPARATOR ',') AS g, 1 / 0 AS z FROM t"
            )
        assert rows == [{"g": "long", "z": None}]
        assert not notes
        with notes_of_call() as notes:
            rows = await sql.query(
                "SELECT group_concat('longer') AS g, CAST('1x' AS INT) AS n FROM t"
            )
        assert rows == [{"g": "long", "n": 1}]
        assert len(notes) == 2
        assert all(note.startswith("the database says: ") for note in notes)
        for params in ({"name": "abcdef"}, [{"name": "abcdef"}, {"name": "abcdef"}]):
            with notes_of_call() as notes:
                await sql.write("INSERT INTO t (name) VALUES (:name)", params)
            assert "Data truncated for column 'name'" in "".join(notes)
        with notes_of_call() as notes:
            await sql.query("SELECT CAST('x' AS INT) AS n FROM t, t AS a, t AS b")
        assert "more warnings" in "".join(notes)
    finally:
        mariadb_database.run("SET GLOBAL sql_mode = DEFAULT, group_concat_max_len = DEFAULT")
