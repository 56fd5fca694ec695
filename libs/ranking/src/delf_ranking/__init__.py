"""Texts ranked by words."""

from delf_ranking.catalogs import places, search, shares
from delf_ranking.ranking import Ranking, plain_name, words_of

__all__ = ["Ranking", "places", "plain_name", "search", "shares", "words_of"]
