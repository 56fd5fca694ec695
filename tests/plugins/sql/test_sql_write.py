"""``write`` commits what it reports, or changes nothing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from delf.errors import ConnectionFileNotFoundError, ToolExecutionError, ToolRefusedError
from delf.protocols.connection import Allowed, ProposedCall, Refused
from delf_sql.backends.engine import EngineBackend

pytestmark = pytest.mark.services

SETUP = """
CREATE TABLE items (id int PRIMARY KEY, name varchar(50) UNIQUE, price numeric(10, 2));
INSERT INTO items VALUES (1, 'one', 1.5), (2, 'two', 2);
"""
CHANGED = {"rows": [], "committed": True}


@pytest.fixture
def items(any_database):
    any_database.run(SETUP)
    return any_database


def names(database):
    return database.run("SELECT name FROM items ORDER BY id").split()


async def test_insert_update_and_delete_report_their_row_count(items, open_sql):
    sql = open_sql(items)
    done = await sql.write(
        "INSERT INTO items VALUES (:id, :name, :price)",
        {"id": 3, "name": "x'; --", "price": Decimal("9.99")},
    )
    assert done == {"rowcount": 1, **CHANGED}
    assert await sql.write("UPDATE items SET name = ? WHERE id = ?", ["three", 3]) == {
        "rowcount": 1,
        **CHANGED,
    }
    assert await sql.write("UPDATE items SET name = 'three' WHERE id = 3;") == {
        "rowcount": 1,
        **CHANGED,
    }
    assert await sql.write("UPDATE items SET price = 0 WHERE id > 99") == {"rowcount": 0, **CHANGED}
    assert await sql.write("DELETE FROM items WHERE id IN (:ids)", {"ids": [1, 2]}) == {
        "rowcount": 2,
        **CHANGED,
    }
    assert names(items) == ["three"]


async def test_returning_rows_are_committed(items, open_sql):
    sql = open_sql(items)
    done = await sql.write("INSERT INTO items VALUES (3, 'three', 1) RETURNING id, name")
    assert done == {"rowcount": 1, "rows": [{"id": 3, "name": "three"}], "committed": True}
    assert names(items) == ["one", "two", "three"]


async def test_write_accepts_many_parameter_sets(items, open_sql):
    sql = open_sql(items)
    dicts = [{"id": i, "name": f"n{i}"} for i in range(10, 20)]
    assert (await sql.write("INSERT INTO items (id, name) VALUES (:id, :name)", dicts))[
        "rowcount"
    ] == 10
    lists = [[i, f"n{i}"] for i in range(20, 30)]
    assert (await sql.write("INSERT INTO items (id, name) VALUES (?, ?)", lists))["rowcount"] == 10
    done = await sql.write("DELETE FROM items WHERE id = ?", [[10], [11], [999]])
    assert done == {"rowcount": 2, **CHANGED}
    rows = [[40, "a"], [41, "b"]]
    done = await sql.write("INSERT INTO items (id, name) VALUES (?, ?) RETURNING id", rows)
    assert done == {"rowcount": 2, "rows": [{"id": 40}, {"id": 41}], "committed": True}
    assert len(names(items)) == 22
    assert await sql.write("INSERT INTO items (id) VALUES (?)", []) == {"rowcount": 0, **CHANGED}


async def test_write_of_many_parameter_sets_is_atomic(items, open_sql):
    sql = open_sql(items)
    for statement in (
        "INSERT INTO items (id, name) VALUES (?, ?)",
        "INSERT INTO items (id, name) VALUES (?, ?) RETURNING id",
    ):
        with pytest.raises(ToolExecutionError, match=r"(?i)unique|duplicate"):
            await sql.write(statement, [[5, "five"], [6, "six"], [1, "again"]])
    assert names(items) == ["one", "two"]
    assert await sql.query("SELECT count(*) AS n FROM items") == [{"n": 2}]


async def test_tables_can_be_created_and_dropped(items, open_sql):
    sql = open_sql(items)
    done = await sql.write("CREATE TABLE more (id int PRIMARY KEY, made timestamp NULL)")
    assert done == {"rowcount": 0, **CHANGED}
    await sql.write(
        "INSERT INTO more VALUES (1, :made)", {"made": dt.datetime(2024, 1, 31, 12, 30)}
    )
    assert (
        await sql.query("SELECT id FROM more WHERE made > :made", {"made": dt.datetime(2024, 1, 1)})
    ) == [{"id": 1}]
    await sql.write("ALTER TABLE more ADD COLUMN note varchar(10)")
    assert set((await sql.query("SELECT * FROM more"))[0]) == {"id", "made", "note"}
    await sql.write("DROP TABLE more")
    with pytest.raises(ToolExecutionError, match="more"):
        await sql.query("SELECT * FROM more")


async def test_too_many_returned_rows_roll_back(items, open_sql):
    sql = open_sql(items, max_rows=1)
    with pytest.raises(ToolExecutionError, match="nothing was changed"):
        await sql.write("DELETE FROM items RETURNING id")
    assert names(items) == ["one", "two"]


REFUSED = {
    "COMMIT": "transaction of its own",
    "BEGIN": "transaction of its own",
    "ROLLBACK": "transaction of its own",
    "DELETE FROM items; DELETE FROM items": "one statement",
    "INSERT INTO items VALUES (9, 'x', 1); COMMIT": "one statement",
    "CREATE TABLE event (a int); DELETE FROM items": "one statement",
    "CREATE VIEW package AS SELECT 1; DELETE FROM items": "one statement",
    "SET autocommit = 1": "write does not run 'SET'",
    "COPY items TO PROGRAM 'touch /tmp/delf-evil-file'": "write does not run 'COPY'",
    "ATTACH 'evil.db' AS evil": "write does not run 'ATTACH'",
    "VACUUM INTO 'evil.db'": "write does not run 'VACUUM'",
    "PRAGMA journal_mode = WAL": "write does not run 'PRAGMA'",
    "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE items": "write does not run 'LOAD'",
    "": "empty",
    "/* nothing */;": "empty",
}


@pytest.mark.parametrize(("statement", "message"), REFUSED.items(), ids=range(len(REFUSED)))
async def test_unsuitable_statement_is_refused_by_write(statement, message, items, open_sql):
    with pytest.raises(ToolRefusedError, match=message):
        await open_sql(items).write(statement)
    assert names(items) == ["one", "two"]


SLOW = {
    "sqlite": "WITH RECURSIVE r(n) AS (SELECT 10 UNION ALL SELECT n + 1 FROM r)"
    " INSERT INTO items SELECT n, n, n FROM r",
    "duckdb": "INSERT INTO items SELECT 9, 'slow', count(*) FROM range(1000000) a, range(1000000) b"
    " WHERE a.range * b.range % 7 = 3",
    "postgresql": "INSERT INTO items SELECT 9, 'slow', 1 FROM pg_sleep(20)",
    "mariadb": "INSERT INTO items SELECT 9, SLEEP(20), 1",
}


async def test_slow_write_is_rolled_back(items, open_sql):
    sql = open_sql(items, statement_timeout=0.3)
    with pytest.raises(ToolExecutionError, match=r"longer than 0\.3 s"):
        await sql.write(SLOW[items.kind])
    assert names(items) == ["one", "two"]
    assert (await sql.write("DELETE FROM items"))["rowcount"] == 2


async def test_sqlite_enforces_foreign_keys(sqlite_database, open_sql):
    sqlite_database.run(
        "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a_id int REFERENCES a (id)); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1);"
    )
    with pytest.raises(ToolExecutionError, match="FOREIGN KEY"):
        await open_sql(sqlite_database).write("DELETE FROM a")


async def test_sqlite_stays_within_its_file(sqlite_database, open_sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sqlite_database.run(SETUP)
    sql = open_sql(sqlite_database)
    for statement in (
        "INSERT INTO items SELECT load_extension('x'), 1, 1",
        "CREATE TABLE evil.t (a int)",
    ):
        with pytest.raises(ToolExecutionError):
            await sql.write(statement)
    assert names(sqlite_database) == ["one", "two"]


async def test_routine_bodies_may_contain_semicolons(any_database, open_sql):
    any_database.run(SETUP)
    sql = open_sql(any_database)
    trigger = {
        "sqlite": "CREATE TRIGGER t AFTER INSERT ON items BEGIN UPDATE items SET price = 7 WHERE id = new.id; END",
        "duckdb": "CREATE MACRO two() AS 2",
        "postgresql": "CREATE FUNCTION two() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END",
        "mariadb": "CREATE PROCEDURE two() BEGIN UPDATE items SET price = 1; UPDATE items SET price = 7; END",
    }[any_database.kind]
    assert (await sql.write(trigger))["committed"]
    if any_database.kind == "mariadb":
        await sql.write("CALL two()")
        assert await sql.query("SELECT count(*) AS n FROM items WHERE price = 7") == [{"n": 2}]


async def test_definition_of_a_routine_is_one_statement(items, open_sql):
    definition = {
        "sqlite": "CREATE TRIGGER t AFTER INSERT ON items BEGIN SELECT 1; END",
        "duckdb": "CREATE FUNCTION two() AS 2",
        "postgresql": "CREATE FUNCTION two() RETURNS int LANGUAGE sql AS 'SELECT 2'",
        "mariadb": "CREATE FUNCTION two() RETURNS int RETURN 2",
    }[items.kind]
    with pytest.raises((ToolRefusedError, ToolExecutionError)):
        await open_sql(items).write(f"{definition}; DELETE FROM items")
    assert names(items) == ["one", "two"]


async def test_missing_sqlite_file_is_not_created(tmp_path, open_sql):
    path = tmp_path / "new.db"
    sql = open_sql(f"sqlite:///{path}")
    for call in (
        sql.query("SELECT 1"),
        sql.write("CREATE TABLE t (a int)"),
        sql.schema(),
        sql.context("x"),
    ):
        with pytest.raises(ConnectionFileNotFoundError, match="there is no SQLite file"):
            await call
    assert not path.exists()
    made = open_sql(f"sqlite:///{path}", create=True)
    await made.write("CREATE TABLE t (a int)")
    assert await made.query("SELECT count(*) AS n FROM t") == [{"n": 0}]


async def test_statement_list_is_one_transaction(items, open_sql):
    sql = open_sql(items)
    done = await sql.write(
        ["UPDATE items SET price = :price WHERE id = :id", "DELETE FROM items WHERE id = 2"],
        {"price": 9, "id": 1},
    )
    assert done == {"rowcount": 2, **CHANGED}
    assert names(items) == ["one"]


async def test_value_fits_a_column_that_was_just_altered(any_database, open_sql):
    if any_database.kind == "sqlite":  # its columns hold values of any type
        return
    sql = open_sql(any_database)
    any_database.run("CREATE TABLE stock (n int)")
    alter = {"mariadb": "MODIFY n double", "duckdb": "ALTER n TYPE double"}
    statements = [
        "INSERT INTO stock VALUES (:whole)",
        f"ALTER TABLE stock {alter.get(any_database.kind, 'ALTER n TYPE float8')}",
        "INSERT INTO stock VALUES (:part)",
    ]
    values = {"whole": 1, "part": 1.5}
    if any_database.kind == "mariadb":  # an ALTER stands alone, and another program runs this one
        await sql.write(statements[0], values)
        any_database.run(statements[1])
        await sql.write(statements[2], values)
    else:
        await sql.write(statements, values)
    assert await sql.query("SELECT n FROM stock ORDER BY n") == [{"n": 1.0}, {"n": 1.5}]


async def test_repeated_writes_list_the_tables_of_the_database_once(
    any_database, open_sql, monkeypatch
):
    any_database.run("CREATE TABLE stock (n int)")
    list_relations = EngineBackend.relations
    sessions = []

    def noted(self, session):
        sessions.append(session)
        return list_relations(self, session)

    monkeypatch.setattr(EngineBackend, "relations", noted)
    sql = open_sql(any_database)
    for number in range(3):
        await sql.write("INSERT INTO stock VALUES (:n)", {"n": number})
    assert len(sessions) <= 1


async def test_rows_that_a_list_reads_do_not_count_as_changed(items, open_sql):
    sql = open_sql(items)
    update = "UPDATE items SET price = price + 1"
    select = "SELECT name FROM items WHERE id = 1"
    if items.kind == "mariadb":  # a SELECT may end its transactions, so it stands alone
        done = await sql.write(select)
        assert done == {"rowcount": 0, "rows": [{"name": "one"}], "committed": True}
        return
    for statements in ([update, select], [select, update]):
        done = await sql.write(statements)
        assert done == {"rowcount": 2, "rows": [{"name": "one"}], "committed": True}


async def test_changes_of_a_statement_with_a_common_table_are_counted(items, open_sql):
    sql = open_sql(items)
    keys = "WITH keys AS (SELECT {} AS k)"
    delete = f"{keys.format(1)} DELETE FROM items WHERE id IN (SELECT k FROM keys)"
    if items.kind == "mariadb":  # has no WITH before DELETE
        return
    assert await sql.write(delete) == {"rowcount": 1, **CHANGED}
    insert = f"{keys.format('CAST(? AS int)')} INSERT INTO items (id) SELECT k FROM keys"
    assert await sql.write(insert, [[5], [6]]) == {"rowcount": 2, **CHANGED}


async def test_failing_second_statement_rolls_back_the_first(items, open_sql):
    sql = open_sql(items)
    with pytest.raises(ToolExecutionError, match=r"(?i)unique|duplicate"):
        await sql.write(["DELETE FROM items WHERE id = 1", "INSERT INTO items VALUES (2, 'x', 1)"])
    assert names(items) == ["one", "two"]


async def test_statement_list_without_rollback_is_refused(items, open_sql):
    sql = open_sql(items)
    change = ["DELETE FROM items", "CREATE TABLE more (id int)", "INSERT INTO nothing VALUES (1)"]
    error = ToolRefusedError if items.kind == "mariadb" else ToolExecutionError
    with pytest.raises(error, match="statement 2 of 3" if items.kind == "mariadb" else "nothing"):
        await sql.write(change)
    assert names(items) == ["one", "two"]
    assert [table["table"] for table in await sql.schema()] == ["items"]


async def test_approval_lists_statements_of_a_transaction_with_rows(items, open_sql):
    change = [
        "UPDATE items SET price = :price WHERE id = :id",
        "DELETE FROM items",
        "INSERT INTO items VALUES (3, 'three', 1)",
    ]
    arguments = {"statement": change, "params": {"price": 9, "id": 1}}
    verdict = await open_sql(items).check(ProposedCall(action="write", arguments=arguments))
    assert isinstance(verdict, Allowed)
    shown = [line.rpartition(" (")[2] for line in str(verdict.preview).splitlines()[1:]]
    assert shown == ["rows now: 1)", "rows now: 2)", "new rows: 1)"]
    assert names(items) == ["one", "two"]


@pytest.mark.parametrize(
    ("statement", "params", "shown"),
    [
        ("UPDATE items SET price = 0", None, "rows now: 2"),
        ("UPDATE items SET price = ? WHERE id = ?", [0, 2], "rows now: 1"),
        ("UPDATE items AS i SET price = 0 WHERE i.id > :n", {"n": 9}, "rows now: 0"),
        ('UPDATE items SET "(" = 0 WHERE id = 1', None, "rows now: 1"),
        ("DELETE FROM items WHERE id IN (:ids)", {"ids": [1, 2, 3]}, "rows now: 2"),
        ("DELETE FROM items WHERE id = ?", [[1], [2], [7]], "rows now: 2"),
        ("INSERT INTO items VALUES (3, 'a', (1)), (4, '), (', 2)", None, "new rows: 2"),
        ("INSERT INTO items DEFAULT VALUES", None, "new rows: 1"),
        ("INSERT INTO items VALUES (?, ?, 1)", [[3, "a"], [4, "b"]], "new rows: 2"),
        ("INSERT INTO items SELECT id + 9, name || '9', price FROM items", None, "new rows: 2"),
        ("INSERT INTO items SELECT id + 9, name, price FROM items UNION VALUES (3, 'a', 1)", None,
         "new rows: 3"),
        ("INSERT INTO items VALUES (3, 'a', 1) UNION SELECT id + 9, name, price FROM items", None,
         "rows not counted"),
        ("TRUNCATE TABLE items", None, "rows now: 2"),
        ("TRUNCATE items", None, "rows now: 2"),
        ("TRUNCATE", None, "rows not counted"),
        ("DROP TABLE items", None, "rows now: 2"),
        ("DROP TABLE IF EXISTS items", None, "rows now: 2"),
        ("DROP TABLE nothing", None, "rows not counted"),
        ("UPDATE items SET price = 0 WHERE id IN (SELECT id FROM items)", None, "rows now: 2"),
        ("WITH x AS (SELECT 1 AS id) DELETE FROM items WHERE id IN (SELECT id FROM x)", None,
         "rows not counted"),
        ("UPDATE items SET price = 0 WHERE secret() = 1", None, "rows not counted"),
        ("UPDATE items SET price = ? WHERE id = ?", [[0, n] for n in range(30)],
         "rows not counted for each of 30 sets of parameters"),
        ("CREATE TABLE more (id int)", None, None),
    ],
)  # fmt: skip
async def test_approval_of_a_write_shows_its_rows(statement, params, shown, items, open_sql):
    call = ProposedCall(action="write", arguments={"statement": statement, "params": params})
    verdict = await open_sql(items).check(call)
    assert isinstance(verdict, Allowed)
    assert verdict.preview == shown
    assert names(items) == ["one", "two"]


async def test_error_names_the_failing_statement_of_a_list(items, open_sql):
    change = ["DELETE FROM items WHERE id = 1", "UPDATE items SET nothing = 5", "DELETE FROM items"]
    with pytest.raises(ToolExecutionError) as caught:
        await open_sql(items).write(change)
    text = "statement 2 of 3, UPDATE items SET nothing = 5, failed and none is done: "
    assert text in caught.value.message
    assert names(items) == ["one", "two"]


async def test_statement_list_over_non_transactional_tables_is_refused(mariadb_database, open_sql):
    mariadb_database.run(f"{SETUP} CREATE TABLE log (id int) ENGINE = MyISAM;")
    sql = open_sql(mariadb_database)
    change = ["DELETE FROM items", "INSERT INTO log VALUES (1)"]
    refused = await sql.check(ProposedCall(action="write", arguments={"statement": change}))
    assert "no transactions in log (MyISAM)" in str(refused.message)
    for statement, params in ((change, None), ("INSERT INTO log VALUES (?)", [[1], [2]])):
        call = ProposedCall(action="write", arguments={"statement": statement, "params": params})
        assert isinstance(await sql.check(call), Refused)
        with pytest.raises(ToolRefusedError, match=r"log \(MyISAM\)"):
            await sql.write(statement, params)
    assert names(mariadb_database) == ["one", "two"]
    one = ProposedCall(action="write", arguments={"statement": "DELETE FROM log"})
    shown = str((await sql.check(one)).preview)
    assert "rows now: 0\nno transactions in log (MyISAM): if it fails halfway, a part is" in shown
