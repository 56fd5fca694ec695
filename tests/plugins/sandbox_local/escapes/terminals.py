"""Type into the terminal of the host."""

termios = real_import("termios")
fcntl = real_import("fcntl")
for name in ("/dev/tty", "/dev/pts/0", "/dev/ptmx", "/dev/console", "/dev/tty0", "/dev/vcs"):
    attempt(name, posix.open, name, posix.O_RDWR)
for fd in range(0, 20):
    for what, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSCTTY", 0x540E)):
        result = syscall(16, fd, request, b"x")
        if result >= 0 or result in (-14, -5):
            print("ESCAPED", what, fd, result)
