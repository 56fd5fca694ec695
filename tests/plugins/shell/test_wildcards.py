"""A ``*`` stands for what a program only reads, and never for what it runs, writes or sends."""

from typing import Any

import pytest

from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused
from delf_shell import Shell


def is_let_through(pattern: str, command: str) -> bool:
    shell = Shell(rules=[{"pattern": pattern, "approval_required": False}])
    judged = shell.check(ProposedCall(action="run", arguments={"command": command}))
    assert isinstance(judged, (Allowed, Refused))
    return isinstance(judged, Allowed)


ACTING = """
sed *|sed '1e id' f
sed -n *|sed -n 1,5p f
tar *|tar tf a.tar
gcc *|gcc @options
gcc-12 *|gcc-12 x.c
find . *|find . -exec id ;
find . *|find . -delete
find . *|find . -fprint out
find . -e*|find . -exec
git *|git push
git *|git commit
git *|git clone ext::sh
git *|git config core.pager id
git *|git submodule foreach id
git *|git -c core.pager=id log
git -c *|git -c core.pager=id log
git -C *|git -C sub push
git clone *|git clone ext::sh
git fetch *|git fetch ext::sh
git fetch --upload-pack=x *|git fetch --upload-pack=x ext::sh
git log *|git log --output=out
git log *|git log --ext-diff
git log -*|git log -Oid
git log -n*|git log -nOid
git log --*|git log --output=out
git log --out*|git log --output=out
git branch *|git branch new
git ls-remote *|git ls-remote host:x
awk *|awk 'BEGIN{system("id")}'
xargs *|xargs id
tee *|tee out
sort *|sort -o out f
sort *|sort --compress-program=id f
sort -n*|sort -no out
sort -n* *|sort -noout f
uniq *|uniq f out
uniq *|uniq - out
uniq * *|uniq -- f out
python3.12 *|python3.12 x.py
python tests/*|python tests/x.py
unheard *|unheard word
unheard --level=*|unheard --level=3
"""

READING = """
sed '1e id' f|sed '1e id' f
sed **|sed -i 's/a/b/' f
find *|find src tests
find . -name *|find . -name x
git *|git log main
git *|git status
git *|git diff HEAD~1
git log *|git log '@{u}'
git log -n*|git log -n5
git log --format=*|git log --format=%H
git commit -m *|git commit -m 'a message'
git add *|git add a.py
git -C sub log *|git -C sub log main
uniq *|uniq f
sort *|sort f
sort -k*|sort -k2,3
head -n*|head -n20
cat *|cat a b
grep *|grep word f
wc *|wc f
pytest **|pytest -x tests
"""


def rows(table: str) -> list[list[str]]:
    return [line.rsplit("|", 1) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("pattern", "command"), rows(ACTING))
def test_wildcard_is_refused_in_acting_commands(pattern: str, command: str) -> None:
    assert not is_let_through(pattern, command)


@pytest.mark.parametrize(("pattern", "command"), rows(READING))
def test_wildcard_rule_matches_file_arguments(pattern: str, command: str) -> None:
    assert is_let_through(pattern, command)


def test_blocked_command_names_the_expanded_wildcard() -> None:
    shell = Shell(rules=["sed -n *"])
    judged = shell.check(ProposedCall(action="run", arguments={"command": "sed -n '1e id' f"}))
    assert isinstance(judged, Refused)
    assert "end with **" in judged.message


@pytest.mark.parametrize(
    ("pattern", "command", "fits"),
    [
        ("find", "find . -name '*.py'", True),
        ("find", "find", True),
        ("git log", "git log --output=x", True),
        ("git log", "git logs", False),
        ("git log", "git", False),
        ("wc", "wc -l x | rm x", False),
        ("wc", "wc -l x; rm x", False),
    ],
)
def test_prefix_rule_matches_further_arguments(pattern: str, command: str, fits: bool) -> None:
    rule = {"pattern": pattern, "approval_required": False, "match": "prefix"}
    shell = Shell(rules=[rule])
    judged = shell.check(ProposedCall(action="run", arguments={"command": command}))
    assert isinstance(judged, Allowed) is fits


ASKS_NOBODY = """
find|find . -type f -name '*.py'
grep|grep -rn --include='*.py' TODO src
ls|ls -la src
sort|sort -t: -k2,2nr data.csv
uniq|uniq -c -- -in
tail|tail -n 5 notes.md
git log|git log --oneline --stat -n 20 main -- src
git diff|git diff --name-only HEAD~2
git status|git status
git|git show -C HEAD
wc|wc
make test|make test
"""
UNCERTAIN = """
find|find . -delete
find|find . -name x -exec rm +
find|find . -fprint0 out
find|find /
ls|ls ../secret
cat|cat /etc/passwd
grep|grep -f/etc/passwd x
wc|wc --files0-from=names
sort|sort -no out data.csv
sort|sort --outp=out data.csv
sort|sort --compress-prog=./x data.csv
uniq|uniq in out
uniq|uniq -- in -out
uniq|uniq in -- -out
uniq|uniq - out
uniq --|uniq -- in -out
find|find -- . -delete
git log|git log --output=x
git diff|git diff --ext-diff
git grep|git grep -Oless x
git grep|git grep -nOless x
git grep|git grep --open=./x x
git fsck|git fsck --lost-found
git|git push
git|git -c core.pager=x log
git|git --exec-path=x log
make|make clean
unheard|unheard --of
xargs|xargs rm
"""


@pytest.mark.parametrize("line", ASKS_NOBODY.strip().splitlines())
def test_reading_rule_allows_harmless_arguments_after_the_pattern(line):
    assert isinstance(judged_as_reading(line), Allowed)


@pytest.mark.parametrize("line", UNCERTAIN.strip().splitlines())
def test_reading_rule_asks_about_unknown_arguments_after_the_pattern(line):
    assert isinstance(judged_as_reading(line), NeedsApproval)


def judged_as_reading(line: str) -> Any:
    pattern, _, command = line.partition("|")
    rule = {"pattern": pattern, "approval_required": False, "match": "reading"}
    return Shell(rules=[rule]).check(ProposedCall(action="run", arguments={"command": command}))
