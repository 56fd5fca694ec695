"""Who decides about a call, and how the decision is asked for and kept."""
