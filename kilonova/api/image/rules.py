"""Who may do what with images: Glance's rules and default roles, as one table. An administrator may do everything.

What the caller may not see does not exist for it; that is judged before (`Images.find`).
"""

from __future__ import annotations

from kilonova.api.rejected import Rejected
from kilonova.domain.caller import Caller
from kilonova.services.image.image import COMMUNITY, PUBLIC, Image, no_such_image

SEEN, OWN, SHARED_WITH, OWN_OR_SHARED_WITH, NOBODYS = "seen", "own", "shared with", "own or shared with", "nobody's"

# rule: the role it needs, in the project of the token, and how the image must stand to that project
RULES: dict[str, tuple[str, str]] = {
    "get_images": ("reader", SEEN),
    "get_image": ("reader", SEEN),
    "download_image": ("member", SEEN),
    "add_image": ("member", OWN),
    "modify_image": ("member", OWN),
    "delete_image": ("member", OWN),
    "upload_image": ("member", OWN),
    "deactivate": ("member", OWN),
    "reactivate": ("member", OWN),
    "communitize_image": ("member", OWN),
    "publicize_image": ("admin", NOBODYS),
    "get_members": ("reader", OWN_OR_SHARED_WITH),
    "get_member": ("reader", OWN_OR_SHARED_WITH),
    "add_member": ("member", OWN),
    "delete_member": ("member", OWN),
    "modify_member": ("member", SHARED_WITH),
}
_TO_MAKE_IT = {PUBLIC: "publicize_image", COMMUNITY: "communitize_image"}


def allows(caller: Caller, rule: str, image: Image | None = None) -> bool:
    if caller.project is None:  # no rule of images has another scope
        return False
    if caller.is_admin:
        return True
    role, whose = RULES[rule]
    if role not in caller.roles:
        return False
    if whose == SEEN:
        return True
    assert image is not None, f"{rule} is about one image"
    own = image.is_owned_by(caller) and whose in (OWN, OWN_OR_SHARED_WITH)
    return own or (image.is_member and whose in (SHARED_WITH, OWN_OR_SHARED_WITH))


def require(caller: Caller, rule: str, image: Image | None = None) -> None:
    """`image` is one that the caller's project may see; without the role to see it, it stays hidden."""
    if allows(caller, rule, image):
        return
    if image is not None and rule != "add_image" and caller.project is not None and not allows(caller, "get_image"):
        raise no_such_image(image.id)
    raise Rejected(403, f"Policy doesn't allow {rule} to be performed.")


def require_visibility(caller: Caller, image: Image, visibility: str) -> None:
    """Whether the caller may give the image this visibility."""
    rule = _TO_MAKE_IT.get(visibility)
    if rule is not None:
        require(caller, rule, image)
