"""Whose burial may be undone by its owner: the reason may be gone by now."""

import pytest

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.params import RetryParams, ServerSpec
from kilonova.domain.server import Flavor
from kilonova.engine.context import Subject
from kilonova.operations import REGISTRY
from tests.support.server_records import server_record

from .test_restored import server

CAUSE = Cause(user_id="u", project_id="p", request_id="r", through="api")

SPEC = ServerSpec(project_id="p", user_id="u", created_at=0.0, name="a", flavor=Flavor("small", 1, 512, 1))


def check(failure):
    row = server_record(**server(vm_state="error", cell0_failure=failure, volume_info=None))
    return REGISTRY["rebuild_in_cell0"].check(Subject(row, None, None, None, None, RetryParams(spec=SPEC), CAUSE))


@pytest.mark.parametrize("failure", ["no_valid_host", "not_known", "quota_exceeded", "cancelled"])
def test_a_reason_that_may_be_gone_is_tried_again(failure):
    """Law 18: what was not known may be known now."""
    assert check(failure)


def test_a_build_that_failed_is_the_administrators_to_try():
    with pytest.raises(Refused, match="an administrator can retry it"):
        check("build_failed")
