"""Records that identity stores for others and does not interpret: users' credentials, and policies of old services."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from kilonova.domain.errors import KilonovaError, Refused
from kilonova.domain.json import as_text
from kilonova.records.kinds import Record
from kilonova.schema.tables.identity import credentials, policies
from kilonova.services.identity.keys import Sealing
from kilonova.services.identity.record_service import RecordService
from kilonova.services.identity.records import IdentityRecords, kind_of
from kilonova.services.identity.users import USER
from kilonova.store import rows
from kilonova.world import Row, Tx

EC2 = "ec2"


class Policies(RecordService):
    kind = kind_of("policy", policies, settable=frozenset({"type", "blob"}), filterable=("type",))


class Credentials(RecordService):
    """The credentials of users. The blob is a secret, so it is encrypted in the database."""

    kind = kind_of(
        "credential",
        credentials,
        settable=frozenset({"user_id", "project_id", "type", "sealed"}),
        filterable=("user_id", "type"),
    )
    defaults = {"project_id": None}

    def __init__(self, records: IdentityRecords, seal: Sealing) -> None:
        super().__init__(records)
        self._seal = seal

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        given = {name: value for name, value in request.items() if name not in ("blob", "sealed")}
        if "blob" in request:
            blob = request["blob"]
            text = blob if isinstance(blob, str) else msgspec.json.encode(blob).decode()
            given["sealed"] = self._seal.close_text(text)
        if "user_id" in given and await rows.fetch(tx, USER.table, id=given["user_id"]) is None:
            raise Refused("bad_request", f"Could not find user: {given['user_id'][:255]}.")
        if row is None and await rows.fetch(tx, credentials, id=record_id) is not None:
            raise Refused("exists", "There is already a credential with this access key.")
        return given

    async def create(self, request: Mapping[str, Any], new_id: str = "", **columns: Any) -> Record:
        return await super().create(request, new_id or _id_by_access_key(request), **columns)

    def opened(self, record: Record) -> Record:
        """Return the record with its decrypted blob."""
        view = {name: value for name, value in record.items() if name != "sealed"}
        try:
            return {**view, "blob": self._seal.open_text(as_text(record["sealed"]))}
        except KilonovaError:
            return {**view, "blob": None}  # the key it was sealed with is gone


def _id_by_access_key(request: Mapping[str, Any]) -> str:
    """Return the id of an EC2 credential: the hash of its access key, by which it is found, as in Keystone."""
    if request.get("type") != EC2:
        return ""
    try:
        blob = request["blob"] if isinstance(request["blob"], dict) else msgspec.json.decode(request["blob"])
        access = blob["access"]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise Refused("bad_request", "The blob of an ec2 credential must be JSON with an access key.") from None
    if request.get("project_id") is None:
        raise Refused("bad_request", "An ec2 credential needs a project_id.")
    return hashlib.sha256(str(access).encode()).hexdigest()
