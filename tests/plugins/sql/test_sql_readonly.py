"""``query`` cannot change anything: the gate refuses, and without it the database does."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks import ATTACKS, FINGERPRINTS, GATE_ONLY, SETUP

import delf_sql.gate
from delf.errors import DelfError, ToolExecutionError, ToolRefusedError
from delf_sql.gate import Statement
from delf_sql.lexer import tokenize
