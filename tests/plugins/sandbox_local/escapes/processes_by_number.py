"""Find out what processes there are, and when they work, from their numbers alone."""

buffer = ctypes.create_string_buffer(4096)
for pid in (HOST, TEMPLATE, 1, 2):
    raw("getpgid", 121, pid)
    raw("getsid", 124, pid)
    raw("getpriority", 140, 0, pid)
    raw("sched_getaffinity", 204, pid, 8, buffer)
    raw("sched_getscheduler", 145, pid)
    raw("sched_getparam", 143, pid, buffer)
    raw("sched_getattr", 315, pid, buffer, 56, 0)
    raw("sched_rr_get_interval", 148, pid, buffer)
    raw("ioprio_get", 252, 1, pid)
    raw("prlimit", 302, pid, 7, None, buffer)
    raw("set_robust_list", 274, pid, buffer, buffer)
    raw("waitid", 247, 1, pid, buffer, 4 | 0x01000000, None)
raw("getpriority of a group", 140, 1, HOST)
raw("getpriority of a user", 140, 2, posix.getuid())
