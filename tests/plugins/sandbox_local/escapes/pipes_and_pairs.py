"""Fill every pipe and pair of sockets, whose content no limit of the address space counts."""

held = 0
piece = bytes(1 << 16)
try:
    while True:
        pair = (ctypes.c_int * 2)()
        number, arguments = (53, (1, 1, 0, pair)) if held % 3 else (293, (pair, 0o4000))
        if syscall(number, *arguments) != 0:
            break
        writer = pair[1]
        posix.set_blocking(writer, False)
        try:
            while True:
                held += posix.write(writer, piece)
        except BlockingIOError:
            held += 1
except OSError as error:
    print("refused", error)
print("ESCAPED" if held > 64 << 20 else "refused", held)
