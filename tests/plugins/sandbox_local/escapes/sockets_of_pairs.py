"""A pair of datagram sockets can be had without socket(); each may send to any address."""

import struct


def send_to(fd, name):
    address = struct.pack("=H", 1) + name
    buffer = ctypes.create_string_buffer(address, len(address))
    return syscall(44, fd, b"knock", 5, 0, buffer, len(address))


pair = (ctypes.c_int * 2)()
for family in (1, 2, 16, 40):
    for kind in (2, 5, 1):
        if syscall(53, family, kind, 0, pair) != 0:
            continue
        if kind != 1:
            print("ESCAPED socketpair", family, kind)
        for name in (f"{FOLDER}/d.sock".encode() + b"\0", b"\0" + NAME.encode() + b"-d"):
            result = send_to(pair[0], name)
            print("ESCAPED sent" if result >= 0 else "refused sendto", name, result)
