"""A timer or a queue that notifies somebody else."""

event = (ctypes.c_int * 16)(0, 0, 10, 4, HOST)
timer = ctypes.c_int()
raw("timer_create for the host's thread", 222, 1, event, ctypes.byref(timer))
raw("mq_open", 240, b"pwned", 0o102, 0o600, None)
raw("mq_notify", 244, 3, event)
