"""Take precedence over the host: real time, a deadline, a better priority."""

one = (ctypes.c_int * 12)(48, 6, 0, 0, 0, 0, 10**6, 0, 10**7, 0, 10**7)
raw("nice", 140 + 1, 0, 0, -20)
raw("SCHED_FIFO", 144, 0, 1, (ctypes.c_int * 1)(1))
raw("SCHED_DEADLINE", 314, 0, one, 0)
raw("SCHED_BATCH", 144, 0, 3, (ctypes.c_int * 1)(0))
raw("sched_setaffinity", 203, 0, 8, (ctypes.c_ulong * 1)(1))
raw("ioprio_set", 251, 1, 0, 1 << 13)
raw("PR_SET_TIMERSLACK", 157, 29, 1, 0, 0, 0)
raw("PR_SCHED_CORE", 157, 62, 1, 0, 0, 0)
raw("PR_SET_IO_FLUSHER", 157, 57, 1, 0, 0, 0)
raw("PR_SET_THP_DISABLE", 157, 41, 1, 0, 0, 0)
raw("membarrier of all", 324, 1, 0, 0)
