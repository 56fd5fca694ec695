"""Read or write the host and the template through /proc."""

for pid in (HOST, TEMPLATE, 1):
    for name in ("environ", "mem", "maps", "cmdline", "status", "root/etc/passwd", "cwd/x", "fd/0"):
        attempt(f"/proc/{pid}/{name}", posix.open, f"/proc/{pid}/{name}", posix.O_RDONLY)
    attempt(f"/proc/{pid}/mem for writing", posix.open, f"/proc/{pid}/mem", posix.O_WRONLY)
    attempt(f"/proc/{pid}/fd", posix.listdir, f"/proc/{pid}/fd")
    attempt(f"/proc/{pid}/oom_score_adj", posix.open, f"/proc/{pid}/oom_score_adj", posix.O_WRONLY)
