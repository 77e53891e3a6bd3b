"""The routes of Kilonova's own REST, below /kilonova/v1."""

from __future__ import annotations

from kilonova.api.extra import (
    audits,
    cells,
    explain,
    failure_watch,
    findings,
    hosts,
    image_bytes,
    image_quotas,
    index,
    ledger,
    openapi,
    operations,
    plans,
    servers,
    simulated,
    token_keys,
    unplaced,
)
from kilonova.api.routes import ANY_TOKEN, PUBLIC, Handler, Route


def _route(method: str, path: str, handler: Handler, rule: str) -> Route:
    return Route(method=method, path=path, handler=handler, rule=f"kilonova:{rule}", raw=True)


ROUTES = [
    Route(method="GET", path="/", handler=index.show, rule=ANY_TOKEN),
    _route("GET", "/operations", operations.list_, "operations:list"),
    _route("POST", "/operations", operations.submit_, "operations"),
    _route("GET", "/operations/{id}", operations.show, "operations:show"),
    _route("POST", "/operations/{id}/cancel", operations.cancel_, "operations:cancel"),
    _route("POST", "/operations/{id}/resume", operations.resume_, "operations:resume"),
    _route("POST", "/operations/{id}/abandon", operations.abandon_, "operations:abandon"),
    _route("GET", "/operations/{id}/explain", explain.explain, "operations"),
    Route(method="GET", path="/openapi/{service}", handler=openapi.show, rule=ANY_TOKEN),
    Route(method="POST", path="/plans", handler=plans.plan, rule=ANY_TOKEN, raw=True),
    _route("GET", "/servers", servers.list_, "servers"),
    _route("GET", "/servers/{id}", servers.show, "servers"),
    _route("GET", "/servers/{id}/explain", explain.explain_server, "servers"),
    _route("GET", "/servers/{id}/ledger", ledger.show, "servers"),
    _route("GET", "/unplaced", unplaced.list_, "servers"),
    _route("GET", "/audits", audits.list_, "audits"),
    _route("POST", "/audits", audits.run, "audits"),
    _route("GET", "/findings", findings.list_, "findings"),
    _route("POST", "/findings/{id}/settle", findings.settle_, "findings"),
    _route("GET", "/cells", cells.list_, "cells"),
    _route("POST", "/cells", cells.create, "cells"),
    _route("GET", "/cells/{cell}", cells.show, "cells"),
    _route("POST", "/cells/{cell}", cells.change, "cells"),
    _route("DELETE", "/cells/{cell}", cells.delete, "cells"),
    _route("POST", "/cells/{cell}/hosts", cells.take_host, "cells"),
    _route("GET", "/hosts", hosts.list_, "hosts"),
    _route("GET", "/hosts/{host}", hosts.show, "hosts"),
    _route("POST", "/hosts/{host}", hosts.change, "hosts"),
    _route("POST", "/hosts/{host}/quarantine/{server}", hosts.settle_copy, "hosts"),
    _route("GET", "/ha", failure_watch.show, "ha"),
    _route("POST", "/ha", failure_watch.change, "ha"),
    _route("GET", "/image-quotas/{project}", image_quotas.show, "image_quotas"),
    _route("POST", "/image-quotas/{project}", image_quotas.change, "image_quotas"),
    _route("POST", "/simulated/hosts/{host}", simulated.switch, "simulated"),
    _route("POST", "/simulated/servers/{id}/write", simulated.write, "simulated"),
    _route("GET", "/simulated/servers/{id}/console", simulated.console, "simulated"),
    # hosts have no account: the token of their step is checked by the handler
    Route(method="PUT", path="/image-bytes/{image}", handler=image_bytes.upload, rule=PUBLIC, raw=True),
    Route(method="GET", path="/image-bytes/{image}", handler=image_bytes.download, rule=PUBLIC),
    _route("GET", "/token-keys", token_keys.list_, "token_keys"),
    _route("POST", "/token-keys", token_keys.rotate, "token_keys"),
]
