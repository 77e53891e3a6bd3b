"""Allocation candidates: the providers that could satisfy a query. One search for all queries, over the snapshot.

`query.py` says what can be asked, `conditions.py` which providers fulfil what is asked of one, `seats.py` which of them
belong to which tree, `combine.py` puts them together tree by tree, `search.py` is the whole.
"""

from kilonova.placement.candidates.combine import Candidate
from kilonova.placement.candidates.query import CandidateQuery, Group, Options
from kilonova.placement.candidates.search import Alone, SearchResult, find, in_trees, standing_alone

__all__ = [
    "Alone",
    "Candidate",
    "CandidateQuery",
    "Group",
    "Options",
    "SearchResult",
    "find",
    "in_trees",
    "standing_alone",
]
