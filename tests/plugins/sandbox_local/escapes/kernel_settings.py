"""Change settings of the kernel, which apply to the host, too."""

for name in (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/sys/fs/cgroup/cgroup.procs",
    "/proc/self/uid_map",
    "/proc/self/setgroups",
    "/sys/fs/cgroup/pids/cgroup.procs",
):
    attempt(name, posix.open, name, posix.O_WRONLY)
raw("sethostname", 170, b"pwned", 5)
raw("syslog", 103, 3, ctypes.create_string_buffer(4096), 4096)
raw("acct", 163, None)
raw("sysfs", 139, 3)
