"""The rules on images; the checks are in policy/image.py.

An image that the caller may not see does not exist for it; `Images.find` checks that before.
"""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.services.image.image import COMMUNITY, PUBLIC, Image, no_such_image

_TO_MAKE_IT = {PUBLIC: "publicize_image", COMMUNITY: "communitize_image"}


def allows(call: Call, rule: str, image: Image | None = None) -> bool:
    own = call.caller.project_id
    target = {"project_id": own, "owner": own}
    if image is not None:
        owner = image.owner or ""
        target = {"project_id": owner, "owner": owner, "visibility": image.visibility}
        target |= {"member_id": own} if image.is_member else {}
    return call.service.policy.allows_on(rule, call.caller, target)


def require(call: Call, rule: str, image: Image | None = None) -> None:
    """`image` is one that the caller's project may see; without the role to see it, it stays hidden."""
    if allows(call, rule, image):
        return
    if image is not None and rule != "add_image" and call.caller.project is not None and not allows(call, "get_image"):
        raise no_such_image(image.id)
    raise Refused(403, f"Policy doesn't allow {rule} to be performed.")


def require_visibility(call: Call, image: Image, visibility: str) -> None:
    """Check that the caller may give the image this visibility."""
    rule = _TO_MAKE_IT.get(visibility)
    if rule is not None:
        require(call, rule, image)
