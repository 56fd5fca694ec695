"""Have the kernel merge pages of equal content, and so find out what others have in theirs."""

page = libc.valloc
page.restype = ctypes.c_void_p
place = page(1 << 20)
raw("MADV_MERGEABLE", 28, place, 1 << 20, 12)
raw("MADV_HWPOISON", 28, place, 4096, 100)
raw("MADV_SOFT_OFFLINE", 28, place, 4096, 101)
raw("PR_SET_MEMORY_MERGE", 157, 67, 1, 0, 0, 0)
raw("mincore", 27, place, 1 << 20, ctypes.create_string_buffer(256))
raw("cachestat", 451, 1, (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)(), 0)
