"""An image as the rest of the cloud sees it: its content, its size, who sees it, and whether it has bytes."""

from __future__ import annotations

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.domain.image_bytes import ImageContent
from kilonova.services.image.image import ACTIVE, DEACTIVATED, QUEUED, SAVING, Image
from kilonova.services.image.servers import content_of


def caller(project: str, *roles: str) -> Caller:
    where = IdentityRef(project, project) if project else None
    return Caller(user=IdentityRef("u", "u"), project=where, roles=roles)


@pytest.mark.parametrize(
    ("size", "virtual_size", "needed"), [(None, None, 0), (5, None, 5), (5, 9, 9), (5, 0, 0), (None, 9, 9)]
)
def test_the_size_of_a_disk_that_holds_it(size: int | None, virtual_size: int | None, needed: int) -> None:
    assert Image(id="i", size=size, virtual_size=virtual_size).disk_bytes == needed


def test_its_content_is_its_own_unless_it_was_made_of_another_disk() -> None:
    assert Image(id="i").content == "image:i" and Image(id="i", marker="image:other").content == "image:other"


@pytest.mark.parametrize(
    ("status", "has_bytes"), [(QUEUED, False), (SAVING, False), (ACTIVE, True), (DEACTIVATED, True)]
)
def test_an_active_image_without_a_file_has_no_data(status: str, has_bytes: bool) -> None:
    image = Image(id="i", status=status)
    assert image.has_bytes is has_bytes
    Image(id="i", status=status, file="f").require_data()
    if not has_bytes:
        image.require_data()
        return
    with pytest.raises(Refused, match="Image i has no data: it names snapshots of volumes") as why:
        image.require_data()
    assert why.value.code == "image_without_data"


def test_who_owns_it() -> None:
    owned, nobodys = Image(id="i", owner="p"), Image(id="i", owner="")
    assert owned.is_owned_by(caller("p")) and not owned.is_owned_by(caller("q"))
    assert not nobodys.is_owned_by(caller("")) and not Image(id="i").is_owned_by(caller(""))


@pytest.mark.parametrize(
    ("visibility", "is_member", "others_see"),
    [
        ("public", False, True),
        ("community", False, True),
        ("shared", False, False),
        ("shared", True, True),
        ("private", True, False),
    ],
)
def test_who_sees_it(visibility: str, is_member: bool, others_see: bool) -> None:
    image = Image(id="i", owner="p", visibility=visibility, is_member=is_member)
    assert image.is_visible_to(caller("p")) and image.is_visible_to(caller("q", "admin"))
    assert image.is_visible_to(caller("q", "member")) is others_see


WHOLE = {"status": ACTIVE, "file": "f", "size": 5, "hash_algorithm": "sha512", "hash_value": "h", "disk_format": "raw"}


@pytest.mark.parametrize("missing", [{"status": QUEUED}, {"file": None}, {"size": None}, {"hash_value": None}])
def test_what_a_host_must_find(missing: dict[str, str | None]) -> None:
    expected = ImageContent(size=5, algorithm="sha512", checksum="h", disk_format="raw")
    assert content_of(Image(id="i", **WHOLE)) == expected  # type: ignore[arg-type]
    assert content_of(Image(id="i", **{**WHOLE, **missing})) is None  # type: ignore[arg-type]
    other = content_of(Image(id="i", **{**WHOLE, "hash_algorithm": "sha256"}))  # type: ignore[arg-type]
    assert other is not None and other.algorithm == "sha256"
    bare = content_of(Image(id="i", **{**WHOLE, "hash_algorithm": None, "disk_format": None, "size": 0}))  # type: ignore[arg-type]
    assert bare == ImageContent(size=0, algorithm="sha512", checksum="h", disk_format="")
