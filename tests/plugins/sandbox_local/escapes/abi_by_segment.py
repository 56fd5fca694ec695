"""Go on as a program of 32 bits, by a jump to the other code segment, and call the kernel."""

import struct

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
page = libc.mmap(None, 8192, 7, 0x22 | 0x40, -1, 0)  # MAP_32BIT
inner, back = page + 64, page + 128
# in 64 bits: push 0x23; push inner; retfq
enter = b"\x6a\x23\x68" + struct.pack("<I", inner) + b"\x48\xcb"
# in 32 bits: mov eax, 20; int 0x80; jmp 0x33:back
call = b"\xb8\x14\x00\x00\x00\xcd\x80\xea" + struct.pack("<IH", back, 0x33)
ctypes.memmove(page, enter, len(enter))
ctypes.memmove(inner, call, len(call))
ctypes.memmove(back, b"\xc3", 1)
print("ESCAPED getpid of the other segment", ctypes.CFUNCTYPE(ctypes.c_int)(page)())
