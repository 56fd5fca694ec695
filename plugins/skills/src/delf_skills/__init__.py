"""Skills for delf: instructions for kinds of tasks, in folders of the Agent Skills format."""
