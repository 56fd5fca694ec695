"""Look at every descriptor that is open: files and folders of the host have no place here."""

for fd in range(0, 4096):
    try:
        mode = posix.fstat(fd).st_mode
    except OSError:
        continue
    if (mode & 0o170000) in (0o100000, 0o040000, 0o060000):
        print("ESCAPED descriptor", fd, oct(mode))
    if fd < 3 and (mode & 0o170000) not in (0o020000,):
        print("ESCAPED standard stream", fd, oct(mode))
