"""The routes of Image, below /image. Handlers ask rules.py themselves: whose an image is counts as much as the role."""

from __future__ import annotations

from kilonova.api.image import file, images, members, schemas, usage, versions
from kilonova.api.image.tags import TAGS
from kilonova.api.routes import ANY_TOKEN, PUBLIC, Route

IMAGE = "/v2/images/{image}"

ROUTES = [
    Route(method="GET", path="", handler=versions.choices, rule=PUBLIC),
    Route(method="GET", path="/versions", handler=versions.versions, rule=PUBLIC),
    Route(method="POST", path="/v2/images", handler=images.create, rule=ANY_TOKEN, body=schemas.IMAGE_FORM),
    Route(method="GET", path="/v2/images", handler=images.list_, rule=ANY_TOKEN),
    Route(method="GET", path=IMAGE, handler=images.show, rule=ANY_TOKEN),
    Route(method="PATCH", path=IMAGE, handler=images.update, rule=ANY_TOKEN, raw=True),
    Route(method="DELETE", path=IMAGE, handler=images.delete, rule=ANY_TOKEN),
    Route(method="PUT", path=f"{IMAGE}/file", handler=file.upload, rule=ANY_TOKEN, raw=True),
    Route(method="GET", path=f"{IMAGE}/file", handler=file.download, rule=ANY_TOKEN),
    Route(method="POST", path=f"{IMAGE}/actions/deactivate", handler=images.deactivate, rule=ANY_TOKEN),
    Route(method="POST", path=f"{IMAGE}/actions/reactivate", handler=images.reactivate, rule=ANY_TOKEN),
    Route(method="GET", path=f"{IMAGE}/tasks", handler=images.list_tasks, rule=ANY_TOKEN),
    Route(method="PUT", path=f"{IMAGE}/tags/{{tag}}", handler=TAGS.add, rule=ANY_TOKEN),
    Route(method="DELETE", path=f"{IMAGE}/tags/{{tag}}", handler=TAGS.remove, rule=ANY_TOKEN),
    Route(method="GET", path=f"{IMAGE}/members", handler=members.list_, rule=ANY_TOKEN),
    Route(method="POST", path=f"{IMAGE}/members", handler=members.add, rule=ANY_TOKEN, body=schemas.NEW_MEMBER),
    Route(method="GET", path=f"{IMAGE}/members/{{member}}", handler=members.show, rule=ANY_TOKEN),
    Route(
        method="PUT",
        path=f"{IMAGE}/members/{{member}}",
        handler=members.update,
        rule=ANY_TOKEN,
        body=schemas.MEMBER_ANSWER,
    ),
    Route(method="DELETE", path=f"{IMAGE}/members/{{member}}", handler=members.remove, rule=ANY_TOKEN),
    Route(method="GET", path="/v2/schemas/{schema}", handler=schemas.show, rule=ANY_TOKEN),
    Route(method="GET", path="/v2/info/usage", handler=usage.show, rule=ANY_TOKEN),
    Route(method="GET", path="/v2/info/import", handler=schemas.import_methods, rule=ANY_TOKEN),
]
