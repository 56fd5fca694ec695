"""Evaluations for delf: cases with recorded tool results, run over models, prompts, strategies."""
