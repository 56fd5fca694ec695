"""Move memory about, its own and that of others."""

mask = (ctypes.c_ulong * 1)(1)
raw("mbind", 237, 0x1000, 4096, 1, mask, 64, 0)
raw("set_mempolicy", 238, 1, mask, 64)
raw("get_mempolicy", 239, mask, mask, 64, 0, 0)
raw("set_mempolicy_home_node", 450, 0, 0, 0, 0)
raw("process_mrelease", 448, 3, 0)
raw("pkey_alloc", 330, 0, 0)
raw("pkey_mprotect", 329, 0, 0, 0, -1)
raw("mseal", 462, 0, 0, 0)
raw("map_shadow_stack", 453, 0, 4096, 0)
