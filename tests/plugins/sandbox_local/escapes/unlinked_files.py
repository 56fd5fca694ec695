"""Fill the scratch space with files that have no name any more, and so are not counted."""

held = []
total = 0
piece = bytes(1 << 20)
try:
    for number in range(60):
        fd = posix.open(".", posix.O_RDWR | 0o20200000, 0o600) if number % 2 else None
        if fd is None:
            fd = posix.open(f"u{number}", posix.O_CREAT | posix.O_RDWR)
            posix.unlink(f"u{number}")
        held.append(fd)
        for _ in range(40):
            total += posix.write(fd, piece)
except OSError as error:
    print("refused", total, error)
if total > 100 << 20:
    print("ESCAPED", total)
