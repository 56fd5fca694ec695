"""Files by which the kernel tells about itself, of all memory, and of what is mounted."""

for name in (
    "/proc/kcore", "/proc/kallsyms", "/proc/kpagecount", "/proc/self/pagemap", "/proc/self/maps",
    "/proc/self/mountinfo", "/proc/self/attr/current", "/proc/self/timerslack_ns",
    "/proc/self/clear_refs", "/proc/self/oom_score_adj", "/proc/self/coredump_filter",
    "/proc/self/setgroups", "/proc/self/ns/mnt", "/proc/self/syscall", "/proc/net/unix",
    "/proc/keys", "/proc/modules", "/proc/cmdline", "/proc/sched_debug", "/proc/locks",
    "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf",
    "/sys/firmware/efi", "/sys/power/state", "/sys/module/kernel", "/dev/hugepages",
    "/dev/mqueue", "/dev/shm", "/dev/pts", "/dev/cpu_dma_latency", "/dev/zero", "/dev/full",
):  # fmt: skip
    attempt(f"read {name}", posix.open, name, posix.O_RDONLY)
    attempt(f"write {name}", posix.open, name, posix.O_WRONLY)
