"""Call the kernel by the numbers of x32."""

X32 = 0x40000000
for what, number, arguments in (
    ("getpid", 39, ()),
    ("open", 2, (SECRET.encode(), 0)),
    ("socket", 41, (1, 1, 0)),
    ("execve", 520, (b"/bin/sh", None, None)),
    ("ptrace", 521, (16, HOST, 0, 0)),
):
    raw(what, X32 | number, *arguments)
