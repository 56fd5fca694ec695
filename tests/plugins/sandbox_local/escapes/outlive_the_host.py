"""Forget the death signal, so that nothing ends this process with its host."""

raw("prctl PR_SET_PDEATHSIG", 157, 1, 0, 0, 0, 0)
raw("PR_SET_CHILD_SUBREAPER", 157, 36, 1, 0, 0, 0)
raw("setsid", 112)
raw("setpgid", 109, 0, TEMPLATE)
raw("setpgid of another", 109, TEMPLATE, 0)
