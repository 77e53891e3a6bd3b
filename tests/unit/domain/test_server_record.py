"""The type of a server is the one declaration of its row: columns, decoding by position, values to insert."""

from __future__ import annotations

from types import NoneType
from typing import get_args

import msgspec
from sqlalchemy import BigInteger, Float, Integer, Text

from kilonova.domain.details import Details, details_document
from kilonova.domain.server import COLUMNS, Flavor, Server, flavor_document, to_json
from kilonova.domain.volume import ServerVolume
from kilonova.schema.tables import cell
from kilonova.store.server_records import ServerRecord
from tests.support.server_records import server_record


def test_the_columns_are_the_fields_in_their_order() -> None:
    assert [column.name for column in cell.servers.c] == list(COLUMNS)
    kinds = {name: type(cell.servers.c[name].type) for name in ("id", "turn", "copy", "power_state", "created_at")}
    assert kinds == {"id": Text, "turn": BigInteger, "copy": BigInteger, "power_state": Integer, "created_at": Float}


def test_columns_may_be_empty_where_fields_may_be_none() -> None:
    may_be_none = {f.encode_name for f in msgspec.structs.fields(Server) if NoneType in get_args(f.type)}
    assert may_be_none == {column.name for column in cell.servers.c if column.nullable}
    assert [column.name for column in cell.servers.primary_key] == ["id"]


def test_a_changed_server_has_the_values_of_its_columns() -> None:
    small, large = Flavor("small", 1, 512, 1), Flavor("large", 4, 4096, 10)
    details = details_document(Details(hostname="one"))
    before = server_record(id="a", host="host1", flavor=flavor_document(small), details=details)
    assert before.details.hostname == "one"
    after = before.changed({"host": None, "flavor": flavor_document(large), "details": "{}"})
    assert (before.flavor, before.host_name) == (small, "host1")
    assert (after.id, after.flavor, after.host_name, after.details.hostname) == ("a", large, "", "")


def test_documents_are_decoded_when_asked_for() -> None:
    volume = ServerVolume(id="1", volume_id="v", device="/dev/vdb")
    server = server_record(volume_info=to_json([volume]), details="", runner_host="host1", runner_copy=3)
    assert (server.volumes, server.vifs, server.details) == ([volume], [], Details())
    assert server.runner == ("host1", 3) and server_record().runner is None


def test_the_values_go_into_the_table_as_they_came_out() -> None:
    columns = server_record(id="a", turn=4, flavor="{}").columns()
    assert list(columns) == list(COLUMNS) and (columns["id"], columns["turn"], columns["flavor"]) == ("a", 4, "{}")
    record = ServerRecord.from_row(columns.values())
    record.cell, record.zone = "cell1", "nova"
    assert record.columns() == columns, "what is known besides is not in the row"
