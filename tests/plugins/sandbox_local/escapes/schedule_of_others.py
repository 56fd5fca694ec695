"""Slow the host down: its priority, its processors, its input and output."""

mask = (ctypes.c_ulong * 1)(1)
for pid in (HOST, TEMPLATE):
    raw("sched_setaffinity", 203, pid, 8, mask)
    raw("sched_setparam", 142, pid, (ctypes.c_int * 1)(0))
    raw("sched_setscheduler", 144, pid, 3, (ctypes.c_int * 1)(0))
    raw("sched_setattr", 314, pid, (ctypes.c_int * 12)(48, 3), 0)
    raw("setpriority", 141, 0, pid, 19)
    raw("ioprio_set", 251, 1, pid, 3 << 13)
    raw("migrate_pages", 256, pid, 64, mask, mask)
raw("setpriority of the user", 141, 2, 0, 19)
