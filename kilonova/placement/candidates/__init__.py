"""Allocation candidates: the providers that could satisfy a query. One search for all queries, over the snapshot.

`query.py` defines queries, `conditions.py` finds the providers that fulfil the conditions on one provider, `seats.py`
assigns them to trees, `combine.py` combines them tree by tree, `search.py` runs the whole search.
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
