"""Tests that libraries' messages to scripts have no stack traces and no host folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from delf_confined.words import shorten_message


def test_shortened_message_has_no_trace_or_host_folder(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    for message, expected in {
        f'IO Error: Cannot open file "{tmp_path}/a b/x.db": No such file': 'IO Error: Cannot open file "x.db": No such file',
        f"Cannot open {tmp_path}/x.db, sorry": "Cannot open x.db, sorry",
        "INTERNAL Error: odd\nThis error signals an assertion\nStack Trace:\n0x1 duckdb": "INTERNAL Error: odd",
        "Binder Error: no column x\n\nLINE 1: SELECT x\n              ^": "Binder Error: no column x",
        "Could not convert string '/no/such/place' to INT32": "Could not convert string '/no/such/place' to INT32",
        "divide 1/2 or a/b": "divide 1/2 or a/b",
    }.items():
        assert shorten_message(message) == expected


def test_shortened_duckdb_error_has_no_host_folder(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing of it PAR1")
    with pytest.raises(duckdb.Error) as raised:
        duckdb.sql(f"FROM '{tmp_path}/x.parquet'")
    assert str(tmp_path) in str(raised.value)
    assert str(tmp_path) not in shorten_message(str(raised.value))
