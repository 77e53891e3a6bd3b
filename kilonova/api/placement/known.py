"""A query that names a trait or a resource class that does not exist is refused."""

from __future__ import annotations

from collections.abc import Set as AnySet

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.placement.names import is_standard_class, is_standard_trait, unknown_classes, unknown_traits
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.world import Tx


async def check_known(
    call: Call, snapshot: PlacementSnapshot, classes: AnySet[str], traits: AnySet[str], *, opening: str = ""
) -> None:
    """Refuse unknown classes and traits. Those of some provider exist; only names beyond these and the standard ones
    are looked up. `opening`: the start of the error about a trait."""
    open_classes = [name for name in classes if name not in snapshot.classes and not is_standard_class(name)]
    open_traits = [name for name in traits if name not in snapshot.with_trait and not is_standard_trait(name)]
    if not open_classes and not open_traits:
        return

    async def body(tx: Tx) -> tuple[list[str], list[str]]:
        return await unknown_classes(tx, open_classes), await unknown_traits(tx, open_traits)

    bad_classes, bad_traits = await call.db.placement.read(body, few=True)
    if bad_classes:
        said = f"No such resource class {', '.join(bad_classes)[:200]}."
        raise Refused(400, f"Invalid resource class in resources parameter: {said}")
    if bad_traits:
        raise Refused(400, f"{opening}No such trait(s): {', '.join(bad_traits)[:200]}.")
