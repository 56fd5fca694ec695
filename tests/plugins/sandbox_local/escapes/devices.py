"""Make or open devices."""

raw("mknod", 133, b"null", 0o20666, 0x103)
raw("mknodat", 259, AT_FDCWD, b"disk", 0o60666, 0xFE00)
raw("mkfifo", 133, b"fifo", 0o10666, 0)
for name in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/vda", "/dev/port", "/dev/net/tun"):
    attempt(name, posix.open, name, posix.O_RDONLY)
