"""The steps of a task, in their order; one file each."""
