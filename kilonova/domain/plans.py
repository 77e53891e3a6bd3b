"""The dry runs that `POST /kilonova/v1/plans` and `kilonova plan` offer, and what each takes."""

from __future__ import annotations

import msgspec

SERVER, HOST = "server", "host"
_UNFENCED = {"accept_unfenced": "Go on though only silence proves that the host is dead."}
_NAMED_HOST = {"host": "Name or id of the host to go to; without it the scheduler chooses."}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The dry run of one operation."""

    command: str  # of `kilonova plan`
    summary: str
    on: str = SERVER  # the subject of the operation; "": nothing that exists
    needs: dict[str, str] = {}  # fields of the body, which are options of the command, with their meaning
    takes: dict[str, str] = {}  # likewise; may be left out
    flags: dict[str, str] = {}  # likewise; true if they are given
    several: str = ""  # the field that takes several subjects


PLANS: dict[str, Plan] = {
    "create": Plan(command="create", summary="new servers", on=""),
    "rebuild": Plan(
        command="rebuild",
        summary="Show what a rebuild would do to each disk; of a server in cell0, where it would go.",
        needs={"image": "Name or id of the image."},
    ),
    "delete": Plan(command="delete", summary="Show what a delete would remove and free."),
    "migrate": Plan(
        command="migrate",
        summary="Show where a cold migration would go, and what becomes of each disk and claim.",
        takes=_NAMED_HOST,
    ),
    "confirm_resize": Plan(
        command="confirm", summary="Show what confirming a migration or resize would remove and free."
    ),
    "revert_resize": Plan(command="revert", summary="Show what reverting a migration or resize would remove and free."),
    "evacuate": Plan(
        command="evacuate",
        summary="Show where a server of a dead host would go, and what becomes of each disk and claim.",
        takes=_NAMED_HOST,
        flags=_UNFENCED,
    ),
    "retry": Plan(command="retry", summary="Show where a server in cell0 would go, and what it would claim."),
    "snapshot": Plan(
        command="snapshot",
        summary="Show what an image of a server would be made of, and what is left of the image quota then.",
        takes={"name": "Name of the image."},
    ),
    "resize": Plan(
        command="resize",
        summary="Show where a server would go with another flavor, and what becomes of each disk and claim.",
        needs={"flavor": "Name or id of the flavor."},
    ),
    "evacuate_host": Plan(
        command="evacuate-host",
        summary="Show which servers of dead hosts would go where, and which would not.",
        on=HOST,
        several="hosts",
        flags=_UNFENCED,
    ),
    "drain_host": Plan(
        command="drain-host",
        summary="Show where the servers of hosts would go, and which fit nowhere.",
        on=HOST,
        several="hosts",
        takes={"by": "How: migrate (the default) or stop."},
    ),
    "return_host": Plan(
        command="return-host",
        summary="Show which servers would come home to hosts that they left, and which would not.",
        on=HOST,
        several="hosts",
    ),
    "host_gone": Plan(
        command="host-gone",
        summary="Show what declaring a dead host gone would settle, and what is left of it.",
        on=HOST,
    ),
}
