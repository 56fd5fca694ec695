"""Statements that must change nothing when they are given to ``query``."""

from __future__ import annotations

SETUP = {
    "sqlite": """
        CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT);
        INSERT INTO items VALUES (1, 'one'), (2, 'two');
    """,
    "duckdb": """
        CREATE TABLE items (id int PRIMARY KEY, name text);
        INSERT INTO items VALUES (1, 'one'), (2, 'two');
        CREATE SEQUENCE counter;
        CREATE MACRO reader(path) AS TABLE SELECT * FROM read_text(path);
        CREATE VIEW numbered AS SELECT nextval('counter') AS n;
    """,
    "postgresql": """
        CREATE TABLE items (id int PRIMARY KEY, name text);
        INSERT INTO items VALUES (1, 'one'), (2, 'two');
        CREATE SEQUENCE counter;
        CREATE FUNCTION add_item() RETURNS int LANGUAGE sql VOLATILE AS
            'INSERT INTO items VALUES (99, ''f'') RETURNING id';
        CREATE FUNCTION lying() RETURNS int LANGUAGE plpgsql STABLE AS
            'BEGIN RETURN add_item(); END';
        CREATE FUNCTION fn(items) RETURNS int LANGUAGE plpgsql VOLATILE AS
            'BEGIN PERFORM pg_advisory_lock(7); RETURN 1; END';
        CREATE FUNCTION lower(int) RETURNS int LANGUAGE plpgsql VOLATILE AS
            'BEGIN PERFORM pg_advisory_lock(8); RETURN 1; END';
        CREATE FUNCTION filter(int) RETURNS int LANGUAGE plpgsql STABLE AS
            'BEGIN PERFORM pg_advisory_lock(9); RETURN 1; END';
        CREATE PROCEDURE add_items() LANGUAGE sql AS 'INSERT INTO items VALUES (97, ''p'')';
        CREATE VIEW numbered AS SELECT nextval('counter') AS n;
    """,
    "mariadb": """
        CREATE TABLE items (id int PRIMARY KEY, name text);
        INSERT INTO items VALUES (1, 'one'), (2, 'two');
        CREATE SEQUENCE counter;
        CREATE FUNCTION add_item() RETURNS int MODIFIES SQL DATA
            RETURN (SELECT 1 FROM (SELECT NEXTVAL(counter)) x);
        CREATE PROCEDURE add_items() INSERT INTO items VALUES (97, 'p');
        CREATE VIEW numbered AS SELECT NEXTVAL(counter) AS n;
    """,
}

COMMON = [
    "SELECT 1; DELETE FROM items",
    "SELECT 1;; DELETE FROM items; --",
    "/* */ DELETE FROM items",
    "/* SELECT */ DELETE FROM items -- SELECT",
    "-- SELECT\nDELETE FROM items",
    "DELETE FROM items RETURNING id",
    "INSERT INTO items VALUES (3, 'three')",
    "UPDATE items SET name = 'x'",
    "REPLACE INTO items VALUES (1, 'x')",
    "CREATE TABLE evil (a int)",
    "CREATE TEMPORARY TABLE evil (a int)",
    "CREATE TABLE evil AS SELECT * FROM items",
    "DROP TABLE items",
    "ALTER TABLE items ADD COLUMN evil int",
    "COMMIT",
    "commit; create table evil (a int)",
    "ROLLBACK; CREATE TABLE evil (a int)",
    "BEGIN; DELETE FROM items; COMMIT",
    "WITH gone AS (DELETE FROM items RETURNING id) SELECT * FROM gone",
    "WITH x AS (SELECT 1) DELETE FROM items",
    "WITH x AS (SELECT 5 AS id) INSERT INTO items SELECT id, 'x' FROM x",
    "EXPLAIN DELETE FROM items; DELETE FROM items",
    "",
    " ; -- nothing",
]

ATTACKS = {
    "sqlite": [
        *COMMON,
        "ATTACH DATABASE 'evil.db' AS evil",
        "ATTACH 'evil.db' AS evil; CREATE TABLE evil.t (a int)",
        "VACUUM INTO 'evil.db'",
        "VACUUM",
        "REINDEX",
        "ANALYZE",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA writable_schema(1)",
        "PRAGMA user_version = 42",
        "PRAGMA user_version(42)",
        "PRAGMA journal_mode(DELETE)",
        "PRAGMA journal_mode = WAL",
        "PRAGMA wal_checkpoint",
        "PRAGMA incremental_vacuum",
        "PRAGMA optimize",
        "SELECT * FROM pragma_journal_mode('WAL')",
        "SELECT * FROM pragma_user_version(42)",
        "SELECT load_extension('evil.so')",
        "SELECT LOAD_EXTENSION ( 'evil.so' )",
        "SELECT \"load_extension\"('evil.so')",
        "SELECT fts3_tokenizer('simple', x'00')",
        "SELECT writefile('evil.txt', 'x')",
        "SELECT edit('x')",
        "UPDATE sqlite_master SET sql = 'x'",
        "DELETE FROM sqlite_master",
        "CREATE TEMP TABLE evil AS SELECT 1",
        "CREATE VIRTUAL TABLE evil USING fts5(x)",
        "SAVEPOINT x",
        "SELECT 1 INTO evil",
        "EXPLAIN DELETE FROM items",
    ],
    "duckdb": [
        *COMMON,
        "ATTACH 'evil.duckdb' AS evil",
        "ATTACH 'evil.duckdb' AS evil; CREATE TABLE evil.t (a int)",
        "DETACH evil",
        "USE memory",
        "CREATE TABLE memory.evil (a int)",
        "CREATE OR REPLACE TEMP VIEW evil AS SELECT 1",
        "CREATE TEMP MACRO evil(a) AS a",
        "COPY items TO 'evil.csv'",
        "COPY items TO '/tmp/delf-evil-file'",
        "COPY items FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/delf-evil-file' (FORMAT parquet)",
        "EXPORT DATABASE 'evil'",
        "IMPORT DATABASE 'evil'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FORCE CHECKPOINT",
        "CHECKPOINT",
        "VACUUM",
        "ANALYZE",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "SET VARIABLE x = 1",
        "PRAGMA enable_external_access",
        "PRAGMA database_list",
        "PRAGMA add_parquet_key('a', 'b')",
        "CALL enable_logging()",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'evil.csv'",
        'SELECT * FROM "/etc/passwd"',
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM reader('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT content FROM read_blob('/etc/passwd')",
        "SELECT nextval('counter')",
        "SELECT 'counter'.nextval()",
        "SELECT n FROM numbered",
        "SELECT \"nextval\"('counter')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('items')",
        "SELECT * FROM json_execute_serialized_sql('x')",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM which_secret('s3://a', 's3')",
        "SELECT write_log('evil')",
        "SELECT sleep_ms(1)",
        "SELECT setseed(0.5)",
        "SELECT getvariable('x')",
        "SELECT * FROM python_map_function()",
        "SELECT * FROM SETUP",
        "SELECT * FROM arrow_scan(1, 2, 3)",
        "PREPARE evil AS DELETE FROM items",
        "EXECUTE evil",
        "BEGIN TRANSACTION",
        "EXPLAIN ANALYZE DELETE FROM items",
        "EXPLAIN ANALYZE CREATE TABLE evil AS SELECT 1",
        "EXPLAIN ANALYZE COPY items TO 'evil.csv'",
        "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '/tmp/delf-evil-file'",
        "EXPLAIN /* x */ ANALYZE COPY items TO 'evil.csv'",
        "PIVOT items ON name USING count(*)",
        "CREATE SECRET evil (TYPE http)",
        "SELECT 1) AS a; DELETE FROM items; SELECT * FROM (SELECT 1",
        "SELECT $a$ $b$ $a$; DELETE FROM items; --$b$",
        "SELECT E'\\'; DELETE FROM items; --'; DELETE FROM items",
        "SELECT 1 --\r, nextval('counter')\n, 2",
        "SELECT 1 /* /* */ ; DELETE FROM items; -- */ */; DELETE FROM items",
        "SELECT {'a': nextval('counter')}",
        "SELECT [x FOR x IN [nextval('counter')]]",
        "SELECT COLUMNS('id') FROM items INTO evil",
    ],
    "postgresql": [
        *COMMON,
        "SET TRANSACTION READ WRITE",
        "SET TRANSACTION READ WRITE; CREATE TABLE evil (a int)",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SET default_transaction_read_only = off",
        "RESET ALL",
        "START TRANSACTION READ WRITE",
        "DO $$ BEGIN DELETE FROM items; END $$",
        "DO $x$ BEGIN EXECUTE 'DROP TABLE items'; END $x$",
        "SELECT * INTO evil FROM items",
        "SELECT 1 AS a INTO TEMP evil",
        "SELECT * FROM items FOR UPDATE",
        "SELECT * FROM items FOR NO KEY UPDATE",
        "SELECT * FROM items FOR SHARE",
        "SELECT * FROM (SELECT * FROM items FOR UPDATE) AS x",
        "LOCK TABLE items",
        "TRUNCATE items",
        "CALL add_items()",
        "SELECT add_item()",
        "SELECT lying()",
        "SELECT nextval('counter')",
        "SELECT pg_catalog.nextval ('counter')",
        "SELECT \"nextval\"('counter')",
        "SELECT nextval/**/('counter')",
        "SELECT U&\"next\\0076al\"('counter')",
        "SELECT * FROM nextval('counter')",
        "SELECT n FROM numbered",
        "SELECT setval('counter', 100)",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT set_config('statement_timeout', '0', false)",
        "SELECT set_config('default_transaction_read_only', 'off', false)",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT * FROM pg_read_file('/etc/passwd')",
        "SELECT pg_read_binary_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT lo_export(1, '/tmp/delf-evil-file')",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT pg_cancel_backend(pg_backend_pid())",
        "SELECT pg_reload_conf()",
        "SELECT pg_rotate_logfile()",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock(1)",
        "SELECT pg_notify('a', 'b')",
        "SELECT pg_switch_wal()",
        "SELECT pg_stat_reset()",
        "SELECT query_to_xml('SELECT nextval(''counter'')', true, true, '')",
        "SELECT dblink('dbname=x', 'DELETE FROM items')",
        "COPY items TO PROGRAM 'touch /tmp/delf-evil-file'",
        "COPY items FROM PROGRAM 'echo 5'",
        "COPY (SELECT 1) TO '/tmp/delf-evil-file'",
        "COPY items TO STDOUT",
        "EXPLAIN ANALYZE DELETE FROM items",
        "EXPLAIN (ANALYZE, VERBOSE) UPDATE items SET name = 'x'",
        "EXPLAIN (ANALYZE) CREATE TABLE evil AS SELECT 1",
        "EXPLAIN ANALYZE SELECT nextval('counter')",
        "EXPLAIN ANALYZE WITH x AS (DELETE FROM items RETURNING 1) SELECT * FROM x",
        "WITH x AS (INSERT INTO items VALUES (98, 'w') RETURNING id) SELECT id FROM x",
        "WITH x AS (UPDATE items SET name = 'w' RETURNING id) SELECT count(*) FROM x",
        "WITH a AS (SELECT 1), x AS MATERIALIZED (DELETE FROM items RETURNING *) SELECT 1 FROM a",
        "WITH RECURSIVE x AS (DELETE FROM items RETURNING id) TABLE x",
        "EXPLAIN (FORMAT JSON, ANALYZE true) EXECUTE evil",
        "EXPLAIN (ANALYZE) SELECT * FROM numbered",
        "EXPLAIN ANALYZE SELECT add_item()",
        "SELECT * FROM items WHERE id = (SELECT add_item())",
        "SELECT 1 ORDER BY add_item()",
        "SELECT 1 GROUP BY lying()",
        "VALUES (add_item())",
        "SELECT CASE WHEN true THEN lying() END",
        "PREPARE evil AS DELETE FROM items",
        "EXECUTE evil",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "LISTEN evil",
        "VACUUM items",
        "REFRESH MATERIALIZED VIEW evil",
        "CREATE EXTENSION dblink",
        "CREATE ROLE evil",
        "ALTER SYSTEM SET work_mem = '1MB'",
        "SECURITY LABEL ON TABLE items IS 'x'",
        # A comment ends at a carriage return, and what follows it is run.
        "SELECT 1 --\r, pg_read_file('/etc/passwd')\n, 2",
        "SELECT 1 --\r, lo_export(1, '/tmp/delf-evil-file')\n, 2",
        "SELECT 1 --\r, pg_ls_dir('/')\n, 2",
        "SELECT 1 --\r, pg_reload_conf()\n, 2",
        "SELECT 1 --\r, pg_advisory_lock(1)\n, 2",
        # Functions that are called by a dot, or under a name that seems harmless.
        "SELECT items.fn FROM items",
        'SELECT "items"."fn" FROM items',
        "SELECT (items).fn FROM items",
        "SELECT i.fn FROM (SELECT * FROM items) AS j, items AS i",
        "SELECT ('/etc/passwd'::text).pg_read_file",
        "SELECT x.pg_advisory_lock FROM generate_series(1, 1) AS x",
        "SELECT lower(1)",
        "SELECT items.id.lower FROM items",
        "SELECT (items.id).lower FROM items",
        "SELECT filter(1)",
        "SELECT 1 OPERATOR(pg_catalog.+) pg_advisory_lock(1)",
        "SELECT 1\\; DELETE FROM items",
        "SELECT E'\\'; DELETE FROM items; --'; DELETE FROM items",
        "SELECT $a$ $b$ $a$; DELETE FROM items; --$b$",
        "SELECT 1 /* /* */ ; DELETE FROM items; -- */ */; DELETE FROM items",
    ],
    "mariadb": [
        *COMMON,
        "SET TRANSACTION READ WRITE",
        "SET SESSION TRANSACTION READ WRITE",
        "SET autocommit = 1",
        "SET STATEMENT max_statement_time = 0 FOR SELECT 1",
        "START TRANSACTION READ WRITE",
        "SELECT 1 INTO OUTFILE '/tmp/delf-evil-outfile'",
        "SELECT * FROM items INTO DUMPFILE '/tmp/delf-evil-outfile'",
        "SELECT 1 /*! INTO OUTFILE '/tmp/delf-evil-outfile' */",
        "SELECT 1 /*M! INTO OUTFILE '/tmp/delf-evil-outfile' */",
        "SELECT 1 /*!50000 ; DELETE FROM items */",
        "/*! DELETE FROM items */",
        "SELECT 1 INTO @x",
        "SELECT * FROM items FOR UPDATE",
        "SELECT * FROM items LOCK IN SHARE MODE",
        "SELECT add_item()",
        "CALL add_items()",
        "SELECT NEXTVAL(counter)",
        "SELECT NEXT VALUE FOR counter",
        "SELECT `nextval`(counter)",
        "SELECT SETVAL(counter, 100)",
        "SELECT n FROM numbered",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT load_file ('/etc/passwd')",
        "SELECT GET_LOCK('evil', 1)",
        "SELECT RELEASE_ALL_LOCKS()",
        "SELECT SLEEP(0)",
        "SELECT BENCHMARK(1, 1)",
        "DO SLEEP(0)",
        "LOCK TABLES items WRITE",
        "FLUSH TABLES",
        "TRUNCATE items",
        "HANDLER items OPEN",
        "KILL 1",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE items",
        "BEGIN NOT ATOMIC DELETE FROM items; END",
        "EXECUTE IMMEDIATE 'DELETE FROM items'",
        "PREPARE evil FROM 'DELETE FROM items'",
        "ANALYZE DELETE FROM items",
        "ANALYZE TABLE items",
        "ANALYZE FORMAT=JSON UPDATE items SET name = 'w'",
        "ANALYZE SELECT add_item()",
        "ANALYZE FORMAT=JSON SELECT * FROM numbered",
        "EXPLAIN EXTENDED DELETE FROM items",
        "WITH x AS (SELECT 5 AS id) DELETE FROM items WHERE id IN (SELECT id FROM x)",
        "SELECT * FROM items WHERE id = (SELECT add_item())",
        "SELECT 1 ORDER BY add_item()",
        "VALUES (add_item())",
        "SELECT CASE WHEN 1 THEN NEXTVAL(counter) END",
        "INSERT INTO items VALUES (98, 'w') RETURNING id",
        "DELETE FROM items RETURNING id",
        "EXPLAIN DELETE FROM items",
        "EXPLAIN UPDATE items SET name = 'x'",
        "DESCRIBE DELETE FROM items",
        "SHOW CREATE USER root",
        "SHOW GRANTS",
        "INSTALL SONAME 'evil'",
        "CREATE USER evil",
        "GRANT ALL ON *.* TO evil",
        "SELECT '\\'; DELETE FROM items; -- '; DELETE FROM items",
        'SELECT "\\"; DELETE FROM items; -- "; DELETE FROM items',
        # What the server takes for no comment, or for one that it runs.
        "SELECT 1 --\u00a0, LOAD_FILE('/etc/passwd')",
        "SELECT 1 --\u2003, GET_LOCK('evil', 1)",
        "SELECT 1 --\x0b, SLEEP(0)",
        "SELECT 1 /*!, LOAD_FILE('/etc/passwd') */",
        "SELECT 1 /*!99999 x */ /*M!100000 , GET_LOCK('evil', 1) */",
        "SELECT 1 # \n; DELETE FROM items",
        "SELECT 1 --\t\n; DELETE FROM items",
    ],
}

FINGERPRINTS = {
    "sqlite": "SELECT group_concat(x, '/') FROM (SELECT quote(id) || quote(name) AS x FROM items UNION ALL "
    "SELECT name || quote(sql) FROM sqlite_master)",
    "duckdb": """
        SELECT (SELECT string_agg(i::text, '/' ORDER BY id) FROM items i),
               (SELECT string_agg(table_name, ',' ORDER BY table_name) FROM duckdb_tables()),
               (SELECT string_agg(last_value, ',') FROM duckdb_sequences()),
               (SELECT count(*) FROM duckdb_views() WHERE NOT internal),
               (SELECT count(*) FROM duckdb_databases())
    """,
    "postgresql": """
        SELECT string_agg(i::text, '/' ORDER BY id) FROM items i;
        SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class
            WHERE relnamespace = 'public'::regnamespace;
        SELECT last_value, is_called FROM counter;
        SELECT count(*) FROM pg_largeobject_metadata;
        SELECT count(*) FROM pg_roles;
        SELECT count(*) FROM pg_extension;
        SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
        SELECT count(*) FROM pg_prepared_statements;
    """,
    "mariadb": """
        SELECT id, name FROM items ORDER BY id;
        SELECT table_name, column_name FROM information_schema.columns
            WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position;
        SELECT next_not_cached_value FROM counter;
        SELECT user FROM mysql.user ORDER BY user;
        SELECT IS_USED_LOCK('evil');
        SELECT LOAD_FILE('/tmp/delf-evil-outfile');
    """,
}

GATE_ONLY = {
    # Nothing that lasts: the gate refuses them for what they show, hold or wait for.
    "REINDEX",  # there is nothing to do here
    "SELECT LOAD_FILE('/etc/passwd')",
    "SELECT load_file ('/etc/passwd')",
    "SELECT GET_LOCK('evil', 1)",
    "SELECT RELEASE_ALL_LOCKS()",
    "SELECT SLEEP(0)",
    "SELECT BENCHMARK(1, 1)",
    "SELECT * FROM items LOCK IN SHARE MODE",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('items')",
    "SELECT write_log('evil')",  # into this session's own memory
    "SELECT sleep_ms(1)",
    "SELECT setseed(0.5)",
    "SELECT getvariable('x')",
    "SELECT query_to_xml('SELECT nextval(''counter'')', true, true, '')",
}
