"""Queries that are refused, in which version, with which words and code."""

from __future__ import annotations

import pytest

from tests.unit.api.placement.asked import Asked, run

A, B = "a0000000-0000-0000-0000-000000000001", "a0000000-0000-0000-0000-000000000002"
UNDEFINED = "placement.undefined_code"
BAD, DUPLICATE, MISSING = (f"placement.query.{word}" for word in ("bad_value", "duplicate_key", "missing_value"))

REFUSED = [
    # version, query, words, code
    ("1.10", "", "'resources' is a required property", ""),
    ("1.10", "resources=", "Got: empty string.", ""),
    ("1.10", "resources=VCPU", "Got: VCPU.", ""),
    ("1.10", "resources=VCPU:1:2", "Got: VCPU:1:2.", ""),
    ("1.10", "resources=VCPU:x", "expected positive integer amount. Got: x.", ""),
    ("1.10", "resources=VCPU:0", "requires amount >= 1. Got: 0.", ""),
    ("1.10", "resources=NO_SUCH:1", "Invalid resource class in resources parameter", ""),
    ("1.15", "resources=VCPU:1&limit=1", "'limit' was unexpected", ""),
    ("1.16", "resources=VCPU:1&limit=0", "Failed validating 'pattern'", ""),
    ("1.16", "resources=VCPU:1&required=COMPUTE_NODE", "'required' was unexpected", ""),
    ("1.17", "resources=VCPU:1&required=", "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC.", ""),
    ("1.21", "resources=VCPU:1&required=!COMPUTE_NODE", "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC.", ""),
    ("1.22", "resources=VCPU:1&required=!", "of the form: HW_CPU_X86_VMX,!CUSTOM_MAGIC.", ""),
    ("1.20", f"resources=VCPU:1&member_of={A}", "'member_of' was unexpected", ""),
    ("1.21", "resources=VCPU:1&member_of=x", "to contain valid UUID(s)", ""),
    ("1.21", f"resources=VCPU:1&member_of={A},{B}", "must be prefixed with the 'in:'", ""),
    ("1.23", f"resources=VCPU:1&member_of={A}&member_of={B}", "Multiple member_of parameters", UNDEFINED),
    ("1.31", f"resources=VCPU:1&member_of=!{A}", "Forbidden member_of parameters are not supported", UNDEFINED),
    ("1.32", f"resources=VCPU:1&member_of=in:{A},!{B}", "to contain valid UUID(s)", UNDEFINED),
    ("1.24", "resources1=VCPU:1", "'resources1' was unexpected", UNDEFINED),
    ("1.32", "resources_A=VCPU:1", "'resources_A' does not match any of the regexes", UNDEFINED),
    ("1.33", f"resources{'x' * 65}=VCPU:1", "does not match any of the regexes", UNDEFINED),
    ("1.25", "resources1=VCPU:1&resources2=VCPU:1", 'The "group_policy" parameter is required', UNDEFINED),
    ("1.25", "resources1=VCPU:1&group_policy=x", "'x' is not one of ['none', 'isolate']", UNDEFINED),
    ("1.25", "", "At least one request group", UNDEFINED),
    ("1.25", "resources1=VCPU:1&required2=COMPUTE_NODE", "orphaned traits keys: required2", UNDEFINED),
    ("1.25", f"resources1=VCPU:1&member_of2={A}", "orphaned member_of keys: member_of2", UNDEFINED),
    ("1.31", f"resources1=VCPU:1&in_tree2={A}", "All request groups must specify resources.", UNDEFINED),
    ("1.30", f"resources=VCPU:1&in_tree={A}", "'in_tree' does not match any of the regexes", UNDEFINED),
    ("1.31", "resources=VCPU:1&in_tree=x", "Expected 'in_tree' parameter to be a format of uuid", UNDEFINED),
    ("1.34", "resources=VCPU:1&root_required=COMPUTE_NODE", "'root_required' does not match", UNDEFINED),
    ("1.35", "resources=VCPU:1&root_required=COMPUTE_NODE&root_required=COMPUTE_NODE", "only once", DUPLICATE),
    ("1.35", "resources=VCPU:1&root_required=COMPUTE_NODE,!COMPUTE_NODE", "in root_required: COMPUTE_NODE", BAD),
    ("1.39", "resources=VCPU:1&root_required=in:COMPUTE_NODE,CUSTOM_A", "does not support 'in:'", UNDEFINED),
    ("1.35", "resources=VCPU:1&root_required=CUSTOM_NO", "No such trait(s): CUSTOM_NO.", UNDEFINED),
    ("1.35", "resources=VCPU:1&same_subtree=_A", "'same_subtree' does not match any", UNDEFINED),
    ("1.36", "required_A=COMPUTE_NODE&same_subtree=_A", "There must be at least one resources", MISSING),
    ("1.36", "resources=VCPU:1&required_A=COMPUTE_NODE", "Resourceless suffixed group request", BAD),
    ("1.36", "resources=VCPU:1&same_subtree=_A", "Real suffixes should be specified", BAD),
    ("1.36", "resources_A=VCPU:1&same_subtree=_A,", "Empty string (unsuffixed group)", BAD),
    ("1.38", "resources=VCPU:1&required=in:COMPUTE_NODE,CUSTOM_A", "only supported since microversion 1.39", UNDEFINED),
    ("1.39", "resources=VCPU:1&required=in:COMPUTE_NODE,", "in:HW_CPU_X86_VMX,CUSTOM_MAGIC", UNDEFINED),
    ("1.39", "resources=VCPU:1&required=in:COMPUTE_NODE,!CUSTOM_A", "does not support forbidden traits", UNDEFINED),
    ("1.39", "resources=VCPU:1&required=COMPUTE_NODE&required=!COMPUTE_NODE", "required: (COMPUTE_NODE)", UNDEFINED),
    ("1.39", "resources=VCPU:1&colour=red", "'colour' does not match any of the regexes", UNDEFINED),
]


@pytest.mark.parametrize(("at", "query", "words", "code"), REFUSED)
def test_refused(at: str, query: str, words: str, code: str) -> None:
    async def story(ask: Asked) -> None:
        error = await ask.refused("GET", f"/allocation_candidates?{query}", at=at, status=400)
        assert words in error["detail"]
        assert error.get("code", "") == code

    run(story)


LIST_REFUSED = [
    ("1.0", "uuid=x", "Failed validating 'pattern'"),
    ("1.2", f"member_of={A}", "'member_of' was unexpected"),
    ("1.3", "resources=VCPU:1", "'resources' was unexpected"),
    ("1.13", f"in_tree={A}", "'in_tree' was unexpected"),
    ("1.14", "in_tree=x", "Failed validating 'pattern'"),
    ("1.17", "required=COMPUTE_NODE", "'required' was unexpected"),
    ("1.18", "required=CUSTOM_NO", 'Invalid trait(s) in "required" parameter: No such trait(s): CUSTOM_NO.'),
    ("1.39", "resources=CUSTOM_NO:1", "No such resource class CUSTOM_NO."),
]


@pytest.mark.parametrize(("at", "query", "words"), LIST_REFUSED)
def test_refused_as_a_list(at: str, query: str, words: str) -> None:
    async def story(ask: Asked) -> None:
        error = await ask.refused("GET", f"/resource_providers?{query}", at=at, status=400)
        assert words in error["detail"]

    run(story)


def test_names_that_exist_but_nobody_has_are_no_fault() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("a", VCPU=4)
        path = "/allocation_candidates?resources=VCPU:1&required=CUSTOM_RARE"
        await ask.refused("GET", path, status=400)
        await ask.done("PUT", "/traits/CUSTOM_RARE")
        await ask.done("PUT", "/resource_classes/CUSTOM_THING")
        assert (await ask.done("GET", path))["allocation_requests"] == []
        nothing = await ask.done("GET", "/allocation_candidates?resources=CUSTOM_THING:1,PGPU:1")
        assert nothing == {"allocation_requests": [], "provider_summaries": {}}
        offer = {"resource_class": "CUSTOM_THING", "total": 1}
        await ask.done("POST", f"/resource_providers/{uuid}/inventories", offer)
        body = {"resource_provider_generation": await ask.generation(uuid), "traits": ["CUSTOM_RARE"]}
        await ask.done("PUT", f"/resource_providers/{uuid}/traits", body)
        one = await ask.done("GET", "/allocation_candidates?resources=CUSTOM_THING:1&required=CUSTOM_RARE")
        assert len(one["allocation_requests"]) == 1
        await ask.done("DELETE", f"/resource_providers/{uuid}")
        for name in ("/traits/CUSTOM_RARE", "/resource_classes/CUSTOM_THING"):
            await ask.done("DELETE", name)
        await ask.refused("GET", path, status=400)
        await ask.refused("GET", "/allocation_candidates?resources=CUSTOM_THING:1", status=400)

    run(story)


def test_before_repeating_was_allowed_the_last_one_counts() -> None:
    async def story(ask: Asked) -> None:
        uuid = await ask.provider("a", VCPU=4)
        body = {"resource_provider_generation": await ask.generation(uuid), "traits": ["HW_CPU_X86_VMX"]}
        await ask.done("PUT", f"/resource_providers/{uuid}/traits", body)
        path = "/allocation_candidates?resources=VCPU:1&required=COMPUTE_NODE&required=HW_CPU_X86_VMX"
        assert len((await ask.done("GET", path, at="1.38"))["allocation_requests"]) == 1
        assert len((await ask.done("GET", path, at="1.39"))["allocation_requests"]) == 0

    run(story)
