"""``allowed_libs``: which packages scripts may import."""

import pytest

from delf.errors import ConfigurationError

HERE = 'packaging>=20; python_version >= "3.11"'
ELSEWHERE = 'pluggy; sys_platform == "win95" or python_version < "3"'
IMPORTS = """
for name in ("packaging", "pluggy"):
    try:
        __import__(name)
        print(name)
    except ImportError:
        print("no", name)
"""


def test_one_whose_marker_is_true_here_can_be_imported(make_agent, scripted_model):
    scripted_model.writes(IMPORTS)
    response = make_agent(allowed_libs=[HERE, ELSEWHERE]).run("Import.").raise_for_status()
    assert response.text == "packaging\nno pluggy"


def test_the_model_is_told_of_those_without_their_markers(make_agent, scripted_model):
    scripted_model.writes("print(1)")
    make_agent(allowed_libs=[HERE, ELSEWHERE, "pluggy >= 1"]).run("Import.").raise_for_status()
    rules = scripted_model.requests[0].messages[0].text
    assert "harmless standard modules and packaging>=20, pluggy >= 1 can be imported" in rules


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("", "which is not a library with its versions"),
        ("./wheel", "which is not a library with its versions"),
        ("pandas excel", "which is not a library with its versions"),
        ("pandas; python > 3", "which is not a library with its versions"),
        ('pandas; python_version ~= "big"', "whose marker means nothing"),
    ],
)
def test_one_that_cannot_be_read_is_refused(make_agent, scripted_model, library, why):
    with pytest.raises(ConfigurationError) as caught:
        make_agent(allowed_libs=["packaging", library]).start()
    assert f"allowed_libs has {library!r}, {why}" in caught.value.message
    assert "'numpy; python_version > \"3.10\"'" in caught.value.hint
