"""The rules of Image, with Glance's names and default roles.

The target is the image: `project_id` and `owner`, `visibility`, and `member_id` (the caller's project, if the image is
shared with it). An image that the caller may not see is not found; that is checked before the rules.
"""

from __future__ import annotations

_SEEN = " or ".join(("project_id:%(project_id)s", "project_id:%(member_id)s"))
_SHOWN = " or ".join(f'"{visibility}":%(visibility)s' for visibility in ("community", "public", "shared"))
_READ = f"rule:context_is_admin or (role:reader and ({_SEEN} or {_SHOWN}))"
_DOWNLOAD = f"rule:context_is_admin or (role:member and ({_SEEN} or {_SHOWN}))"
_WRITE = "rule:context_is_admin or (role:member and project_id:%(project_id)s)"

IMAGE: dict[str, str] = {
    "get_images": "rule:context_is_admin or (role:reader and project_id:%(project_id)s)",
    "get_image": _READ,
    "download_image": _DOWNLOAD,
    "add_image": "rule:context_is_admin or (role:member and project_id:%(project_id)s and project_id:%(owner)s)",
    "modify_image": _WRITE,
    "delete_image": _WRITE,
    "upload_image": _WRITE,
    "deactivate": _WRITE,
    "reactivate": _WRITE,
    "communitize_image": _WRITE,
    "publicize_image": "rule:context_is_admin",
    "get_members": f"rule:context_is_admin or (role:reader and ({_SEEN}))",
    "get_member": f"rule:context_is_admin or (role:reader and ({_SEEN}))",
    "add_member": _WRITE,
    "delete_member": _WRITE,
    "modify_member": "rule:context_is_admin or (role:member and project_id:%(member_id)s)",
}
