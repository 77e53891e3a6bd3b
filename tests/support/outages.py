"""A cell of an embedded cloud whose database goes away and comes back."""

from __future__ import annotations

from kilonova.api.service import Service
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.sim.lab.outages import Outages
from kilonova.store import cell_store


def breakable(service: Service, cell: str) -> Outages:
    """What is done to `cell` with these happens to every role of the cloud."""
    outages = Outages()
    store = service.engine.world.db.cell(cell)
    assert isinstance(store, cell_store.CellStore) and store._store is not None
    store._store = FaultyStore(store._store, outages)
    return outages
