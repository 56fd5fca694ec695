"""Hold the kernel up in the middle of a copy."""

raw("userfaultfd", 323, 1)
attempt("/dev/userfaultfd", posix.open, "/dev/userfaultfd", posix.O_RDWR)
attempt("/dev/fuse", posix.open, "/dev/fuse", posix.O_RDWR)
