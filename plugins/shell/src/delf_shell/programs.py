"""Programs' uses of their words, as far as a wildcard may stand for them.

A ``*`` stands for words that a program only reads, and for no file of options (``@file``). Many
programs run a word, write to it, or send it somewhere: for those, rules name the words, or say
``**``. Programs that are not known here are taken to read theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from delf_shell.parse import Words
from delf_shell.sed import only_prints

Covers = Callable[[Words, Collection[int]], bool]
"""The places of words that wildcards may stand for."""

_VERSION: Final = re.compile(r"-?[\d.]+$")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ACTS: Final = _words(
    # run what they are given, or a file of that name
    "sh bash dash zsh ksh fish csh tcsh pwsh env xargs nice nohup timeout time sudo su doas setsid "
    "stdbuf ionice taskset chrt chroot unshare nsenter flock watch parallel strace ltrace gdb lldb "
    "valgrind perf script expect busybox toybox awk gawk mawk nawk perl python pythonw pypy ruby "
    "node nodejs deno bun php lua luajit tclsh wish Rscript R julia java groovy scala kotlin "
    "osascript ipython jupyter make gmake cmake ninja meson bazel npm npx yarn pnpm pip pipx uv "
    "uvx poetry pdm hatch tox nox pytest cargo go gradle mvn ant docker podman nerdctl kubectl "
    "helm terraform ansible systemctl systemd-run service crontab at batch screen tmux dbus-send "
    "vi vim nvim view ex ed emacs nano pico less more most man info run-parts find-exec xdg-open "
    "open sqlite sqlite3 psql mysql mariadb duckdb redis-cli mongo mongosh bc dc gnuplot octave "
    "m4 tex latex pdflatex xelatex lualatex gs entr fzf "
    "ash rbash mksh yash elvish nu xonsh runuser pkexec setpriv capsh bwrap firejail prlimit "
    "numactl rlwrap unbuffer chronic ifne pee hyperfine ldd vimdiff nvimdiff rvim joe micro kak hx "
    "dotnet mono wine swift dart elixir iex erl escript guile sbcl clisp ghci runghc racket ocaml "
    "nim zig crystal tsx ts-node bunx pnpx corepack just task invoke fab scons waf rake bundle gem "
    "composer stack cabal rustup pre-commit bmake xsltproc yq "
    # write to what they are given, or in its place
    "tee dd cp mv rm rmdir ln link unlink mkdir mkfifo mknod touch truncate install shred chmod "
    "chown chgrp chattr setfacl patch split csplit gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd "
    "lz4 lzma zip unzip 7z 7za 7zr rar unrar cpio pax ar ranlib strip objcopy ffmpeg convert "
    "magick mogrify pandoc dos2unix unix2dos rename mount umount hostname hostnamectl date "
    "timedatectl kill pkill killall apt apt-get dpkg yum dnf rpm brew pacman apk snap useradd "
    "usermod userdel passwd mkfs fdisk parted "
    "sponge fallocate mktemp losetup sysctl ip iptables nft nmcli ifconfig route logger "
    # send it somewhere
    "ssh scp sftp rsync rsh rlogin telnet ftp tftp nc ncat netcat socat curl wget aria2c http "
    "https xh ping ping6 traceroute dig nslookup host whois mail mailx sendmail mutt gh glab hub "
    "nmap tcpdump openssl gpg ssh-copy-id lp lpr wall write yt-dlp youtube-dl ffprobe mpv vlc "
    "aws gcloud az rclone s3cmd svn hg bzr cvs"
)
_GIT_READS: Final = _words(
    "add annotate blame cat-file check-attr check-ignore cherry commit count-objects describe diff "
    "diff-files diff-index diff-tree for-each-ref fsck grep log ls-files ls-tree merge-base "
    "name-rev range-diff rev-list rev-parse shortlog show show-branch show-ref status var "
    "verify-commit verify-tag whatchanged"
)
_GIT_CHANGES: Final = frozenset({"add", "commit"})
"""Named by a rule, their words are only read."""
_GIT_VALUES: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_LISTS: Final = frozenset("tvfzjJa")
"""Letters of ``tar`` without a dash by which it lists an archive."""


def may_cover(command: Words, covered: Collection[int]) -> bool:
    """Tell whether wildcards may stand for these words: whether the program only reads them.

    Args:
        command: All words of a command.
        covered: The places of those that wildcards stand for.
    """
    if not covered:
        return True
    program = command[0]
    if program != "git" and any(command[place].startswith("@") for place in covered):
        return False  # a file of options
    own = _OWN.get(program) or _OWN.get(_VERSION.sub("", program))
    if own is not None:
        return own(command, covered)
    return not {program, _VERSION.sub("", program)} & _ACTS


def only_reads(command: Words, options: Sequence[str]) -> bool:
    """Tell whether options leave a program at reading; those of unknown programs may not.

    Args:
        command: All words of a command.
        options: Those of its words that begin with ``-``.
    """
    acts = _OPTIONS_THAT_ACT.get(command[0])
    return not options or (acts is not None and not any(map(acts.match, options)))


def _git(command: Words, covered: Collection[int]) -> bool:
    """Words of commands that read; none that names another way of transport."""
    at = 1
    while at < len(command) and command[at].startswith("-"):
        at += 2 if command[at] in _GIT_VALUES else 1
    named = command[at] if at < len(command) else ""
    known = _GIT_READS - _GIT_CHANGES if at in covered else _GIT_READS
    before = any(place < at for place in covered)
    return not before and named in known and not any("::" in command[place] for place in covered)


def _sed(command: Words, covered: Collection[int]) -> bool:
    """Files, and scripts that only print."""
    scripts = [
        place + 1
        for place, word in enumerate(command)
        if word == "--expression" or re.fullmatch(r"-[nErsuz]*e", word)
    ]
    named = any(re.match(r"-[nErsuz]*[ef]|--(?:expression|file)", word) for word in command[1:])
    if not named:
        scripts = _operands(command)[:1]
    return all(only_prints(command[place]) for place in scripts if place in covered)


def _tar(command: Words, covered: Collection[int]) -> bool:
    """Archives and members of this machine; letters without a dash only to list."""
    if any(":" in command[place] for place in covered):
        return False
    return 1 not in covered or set(command[1]) <= _LISTS


def _one_is_read(command: Words, covered: Collection[int]) -> bool:
    """The second word without a dash is where the result is written to."""
    return not set(_operands(command)[1:]) & set(covered)


def _operands(command: Words) -> Sequence[int]:
    return [place for place, word in enumerate(command) if place and not word.startswith("-")]


_NONE_ACTS: Final = re.compile(r"(?!)")
_OPTIONS_THAT_ACT: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        _words(
            "basename cat cmp cut diff dirname echo grep head ls nl od paste pwd stat tail tr uniq"
        ),
        _NONE_ACTS,
    ),
    # Letters may stand together, and long names be shortened.
    "sort": re.compile(r"-[^-]*[oT]|--(?:o|co|t|fil)"),
    "wc": re.compile(r"--f"),
    "find": re.compile(r"-(?:delete|exec|ok|fprint|fls|files0)"),
    "git": re.compile(r"-O|--(?:ou|op|ext|exec|te|lo|git-dir|work-tree|config-env|namespace)"),
}
"""Programs that read, and their options that write, run something or read names from a file."""

_OWN: Final[dict[str, Covers]] = {
    "git": _git,
    "sed": _sed,
    "gsed": _sed,
    "tar": _tar,
    "gtar": _tar,
    "bsdtar": _tar,
    "uniq": _one_is_read,
    "xxd": _one_is_read,
}
