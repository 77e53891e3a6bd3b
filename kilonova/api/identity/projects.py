"""/projects, with their tags, and those of one user."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.collection import EditTags, Tags
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.forms import ONE_TAG, TAGS_CHANGE
from kilonova.api.identity.rules import PolicyTarget, may, own_domain, require
from kilonova.api.identity.view import change_of, collection, filters, listed, member, within
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject, as_text, texts
from kilonova.records.kinds import Record, id_of
from kilonova.services.identity.projects import DEFAULT_DOMAIN, PROJECT, Projects
from kilonova.services.identity.records import missing
from kilonova.services.identity.users import USER


def home_of(call: Call) -> str:
    """Return the domain for a new record if the body names none."""
    caller = call.caller
    if caller.domain is not None:
        return caller.domain.id
    return caller.project.domain_id if caller.project is not None else DEFAULT_DOMAIN


class ProjectCollection(IdentityCollection):
    kind, list_key, param = PROJECT, "projects", "project"
    reads, writes = "get_project", "manage_projects"

    def service(self, call: Call) -> Projects:
        return call.service.identity.projects

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        home = None if record is None else as_text(record["domain_id"]) or None
        return PolicyTarget(domain_id=home, project_id=call.path["project"])

    async def list_(self, call: Call) -> Response:
        own = own_domain(call)
        require(call, "list_projects", PolicyTarget(domain_id=own))
        criteria = within({"is_domain": 0, **filters(call, PROJECT)}, "domain_id", own)
        names = ("tags", "tags-any", "not-tags", "not-tags-any")
        tags = {name: set(call.query[name].split(",")) for name in names if name in call.query}
        fits = (lambda project: _fits(set(texts(project["tags"])), tags)) if tags else None
        return await listed(call, PROJECT, criteria, fits=fits)

    async def add(self, call: Call) -> Record:
        request: JsonObject = call.body["project"]
        home = as_text(request.get("domain_id")) or (
            "" if request.get("is_domain") or request.get("parent_id") else home_of(call)
        )
        await _require_create(call, request, home)
        return await self.service(call).create(request, home)

    async def edit(self, call: Call, record: Record) -> Record:
        return await self.service(call).change(PROJECT, id_of(record), change_of(call, "project", id_of(record)))

    async def drop(self, call: Call, record: Record) -> None:
        await self.service(call).delete(PROJECT, id_of(record))


PROJECTS = ProjectCollection()


def _fits(tags: set[str], requested: dict[str, set[str]]) -> bool:
    tests: dict[str, Callable[[set[str]], bool]] = {
        "tags": lambda wanted: wanted <= tags,
        "tags-any": lambda wanted: bool(wanted & tags),
        "not-tags": lambda wanted: not wanted <= tags,
        "not-tags-any": lambda wanted: not wanted & tags,
    }
    return all(tests[name](wanted) for name, wanted in requested.items())


async def list_of_user(call: Call) -> Response:
    user_id = call.path["user"]
    user = await call.service.identity.records.find(USER, user_id)
    home = None if user is None else as_text(user["domain_id"])
    require(call, "list_user_projects", PolicyTarget(domain_id=home, user_id=user_id))
    if user is None:
        raise missing("user", user_id)
    projects = await call.service.identity.assignments.projects_of(user_id)
    return answer(collection(call, "projects", [member(call, "projects", project) for project in projects]))


async def _require_create(call: Call, request: JsonObject, home: str) -> None:
    """A domain's manager makes projects in it, and no domains."""
    if not home and request.get("parent_id") and not may(call, "manage_domains"):
        parent = await call.service.identity.records.find(PROJECT, as_text(request["parent_id"]))
        home = "" if parent is None else as_text(parent["domain_id"]) or id_of(parent)
    require(
        call, "manage_domains" if request.get("is_domain") else "manage_projects", PolicyTarget(domain_id=home or None)
    )


# -- tags -------------------------------------------------------------------------------------------------------------


class ProjectTags(Tags):
    async def read(self, call: Call) -> list[str]:
        return texts((await PROJECTS.find(call))["tags"])

    async def change(self, call: Call, edit: EditTags) -> list[str]:
        project = await PROJECTS.find(call, writes=True)
        return await call.service.identity.projects.edit_tags(id_of(project), edit)

    def added_to(self, call: Call, old: list[str], tag: str) -> list[str]:
        ONE_TAG.check(tag, call.version)
        TAGS_CHANGE.check({"tags": [*old, tag]}, call.version)
        return [*old, tag]

    def missing(self, call: Call) -> Refused:
        return Refused(404, f"Could not find project tag: {call.path['tag'][:255]}.")

    def view(self, call: Call, tags: list[str]) -> Response:
        return answer({"tags": tags, "links": {"self": call.url(call.request.scope["service_path"])}})

    def added(self, call: Call, tag: str, is_new: bool) -> Response:
        return nothing(201, call.location("projects", call.path["project"], "tags", tag))
