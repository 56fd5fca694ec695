"""Functions that children of the tests call."""

import duckdb


def copy(path):
    """Have DuckDB write a file, with nothing that DuckDB itself forbids."""
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{path}'")
    return True
