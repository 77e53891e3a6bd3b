"""The type of a server and its table are one declaration: rows are decoded by position."""

from __future__ import annotations

import msgspec

from kilonova.domain.server import Flavor, Server, flavor_document
from kilonova.schema.tables import cell
from tests.support.server_records import server_record


def test_the_fields_are_the_columns_in_their_order() -> None:
    assert [field.encode_name for field in msgspec.structs.fields(Server)] == [column.name for column in cell.servers.c]


def test_columns_that_may_be_empty_may_be_none() -> None:
    may_be_none = {f.encode_name for f in msgspec.structs.fields(Server) if "None" in str(f.type)}
    assert may_be_none == {column.name for column in cell.servers.c if column.nullable}


def test_a_changed_server_has_the_values_of_its_columns() -> None:
    small, large = Flavor("small", 1, 512, 1), Flavor("large", 4, 4096, 10)
    before = server_record(id="a", host="host1", flavor=flavor_document(small))
    after = before.changed({"host": None, "flavor": flavor_document(large)})
    assert (before.flavor, before.host_name) == (small, "host1")
    assert (after.id, after.flavor, after.host_name) == ("a", large, "")
