"""Send signals to the host, by every call that sends one."""

for pid in (HOST, TEMPLATE):
    attempt("kill 0", posix.kill, pid, 0)
    raw("kill", 62, pid, 10)
    raw("tkill", 200, pid, 10)
    raw("tgkill", 234, pid, pid, 10)
    info = (ctypes.c_int * 32)(10, 0, -1)
    raw("rt_sigqueueinfo", 129, pid, 10, info)
    raw("rt_tgsigqueueinfo", 297, pid, pid, 10, info)
attempt("killpg", posix.killpg, HOST, 0)
raw("kill everything", 62, -1, 0)
