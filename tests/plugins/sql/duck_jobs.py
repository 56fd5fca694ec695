"""Functions that children of the tests call."""

import duckdb


def copy(path: str) -> bool:
    """Let DuckDB write a file, without any of DuckDB's own restrictions."""
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{path}'")
    return True
