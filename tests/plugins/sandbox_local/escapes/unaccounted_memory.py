"""Take memory that no limit of the address space counts."""

taken = raw("shmget", 29, 0, 1 << 26, 0o1600)
raw("semget", 64, 0, 10, 0o1600)
raw("msgget", 68, 0, 0o1600)
reader, writer = posix.pipe()
raw("F_SETPIPE_SZ", 72, writer, 1031, 1 << 20)
raw("vmsplice", 278, writer, None, 0, 0)
raw("mlockall", 151, 1)
attempt("/dev/shm", posix.open, "/dev/shm/pwned", posix.O_CREAT | posix.O_RDWR)
