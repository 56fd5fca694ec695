"""Changes by a statement to its session are undone before the next statement."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.services

SETUP = "CREATE TABLE items (id int PRIMARY KEY, name varchar(50)); INSERT INTO items VALUES (1, 'one');"


async def test_session_settings_end_with_their_write(postgres_database, open_sql):
    postgres_database.run(
        f"{SETUP} CREATE SCHEMA evil; CREATE TABLE evil.items (id int, name text)"
    )
    sql = open_sql(postgres_database, pool_size=2)
    await asyncio.gather(
        *(sql.write("SELECT set_config('search_path', 'evil', false)") for _ in range(4))
    )
    await asyncio.gather(
        *(sql.write("INSERT INTO items VALUES (?, 'x')", [number]) for number in range(10, 14))
    )
    assert postgres_database.run("SELECT count(*) FROM public.items") == "5"
    assert postgres_database.run("SELECT count(*) FROM evil.items") == "0"


async def test_session_locks_are_released(postgres_database, open_sql):
    sql = open_sql(postgres_database, pool_size=1)
    await sql.write("SELECT pg_advisory_lock(1)")
    held = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert postgres_database.run(held) == "0"


async def test_temporary_tables_are_dropped(any_database, open_sql):
    any_database.run(SETUP)
    sql = open_sql(any_database, pool_size=1)
    await sql.write("CREATE TEMPORARY TABLE items (id int, name varchar(50))")
    await sql.write("INSERT INTO items VALUES (2, 'two')")
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 2}]


async def test_mariadb_session_is_reset(mariadb_database, open_sql):
    mariadb_database.run(SETUP)
    sql = open_sql(mariadb_database, pool_size=1)
    assert await sql.query("SELECT @x := 5 AS x") == [{"x": 5}]
    assert await sql.query("SELECT @x AS x") == [{"x": None}]
    await sql.write("SELECT GET_LOCK('evil', 1)")
    assert mariadb_database.run("SELECT IS_USED_LOCK('evil')") == "NULL"
    text = "Grüße 🙂"
    for _ in range(2):
        assert await sql.query("SELECT :t AS t, 'é' AS e", {"t": text}) == [{"t": text, "e": "é"}]
    assert await sql.query("SELECT @@session.tx_read_only AS r") == [{"r": 1}]


async def test_database_chosen_by_a_mariadb_write_is_reset(mariadb_database, open_sql):
    name = mariadb_database.run("SELECT DATABASE()")
    mariadb_database.run(
        f"{SETUP} CREATE DATABASE {name}_evil; CREATE TABLE {name}_evil.items LIKE items"
    )
    try:
        sql = open_sql(mariadb_database, pool_size=1)
        await sql.write(f"CREATE PROCEDURE other() BEGIN EXECUTE IMMEDIATE 'USE {name}_evil'; END")
        await sql.write("CALL other()")
        await sql.write("INSERT INTO items VALUES (7, 'seven')")
        assert mariadb_database.run("SELECT count(*) FROM items") == "2"
    finally:
        mariadb_database.run(f"DROP DATABASE {name}_evil")


async def test_role_set_by_a_mariadb_write_is_reset(mariadb_database, open_sql):
    role = f"role_{mariadb_database.run('SELECT DATABASE()')}"
    mariadb_database.run(f"CREATE ROLE {role}; GRANT {role} TO 'delf'@'%'")
    try:
        sql = open_sql(mariadb_database, pool_size=1)
        await sql.write(f"CREATE PROCEDURE other() SET ROLE {role}")
        await sql.write("CALL other()")
        assert (await sql.write("SELECT CURRENT_ROLE() AS r"))["rows"] == [{"r": None}]
    finally:
        mariadb_database.run(f"DROP ROLE {role}")


async def test_query_runs_with_an_unprivileged_role(postgres_database, open_sql):
    postgres_database.run(f"{SETUP} CREATE TABLE hidden (id int)")
    role = f"reader_{postgres_database.run('SELECT current_database()')}"
    postgres_database.run(f"CREATE ROLE {role}; GRANT SELECT ON items TO {role}")
    try:
        sql = open_sql(postgres_database, role=role, pool_size=1)
        for _ in range(2):
            assert await sql.query("SELECT current_user AS u, name FROM items") == [
                {"u": role, "name": "one"}
            ]
            with pytest.raises(Exception, match="permission denied"):
                await sql.query("SELECT * FROM hidden")
        await sql.write("INSERT INTO hidden VALUES (1)")
    finally:
        postgres_database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
