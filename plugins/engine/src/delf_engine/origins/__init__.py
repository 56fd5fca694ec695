"""The sources of a call's values, by the events of its task and the words that it has read."""
