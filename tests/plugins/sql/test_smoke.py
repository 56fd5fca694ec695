import time

import pytest

from support.fixtures import *


@pytest.mark.parametrize("n", range(6))
def test_a(any_database, n):
    any_database.run("create table t (id int primary key)")
    any_database.run("insert into t values (1)")
    assert any_database.run("select * from t") == "1"
