"""Look up what is in /proc and /sys without opening it."""

for name in (
    f"/proc/{HOST}",
    f"/proc/{TEMPLATE}/status",
    f"/proc/{HOST}/exe",
    f"/proc/{HOST}/cwd",
    f"/proc/{HOST}/fd/0",
    "/proc/1/exe",
    "/proc/self/exe",
    "/proc/self/ns/user",
    "/proc/sys/kernel/hostname",
    "/sys/kernel",
    "/sys/class/net",
    "/sys/fs/cgroup",
):
    attempt(f"stat {name}", lambda name=name: posix.lstat(name) and 1)
    attempt(f"readlink {name}", posix.readlink, name)
    attempt(f"access {name}", lambda name=name: posix.access(name, posix.F_OK) - 1)
