"""Scripts as models write them do what they mean in Monty, or are refused; never something else."""

import pytest

from support.as_written import kinds, written, wrong_ones


@pytest.mark.parametrize("kind", kinds())
def test_natural_script_has_the_intended_meaning(kind, tmp_path):
    assert wrong_ones(written(kind), "monty", tmp_path) == {}
