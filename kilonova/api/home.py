"""`/`: a plain page for people who open the address in a browser. It says what runs here and how to connect."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from kilonova.api.service import Service
from kilonova.store.clouds import ADMIN_CLOUD

SERVICES = (
    ("Identity v3", "/identity/v3", "tokens, users, projects"),
    ("Compute v2.1", "/compute/v2.1/", "servers, flavors, key pairs"),
    ("Image v2", "/image", "images"),
    ("Network v2.0", "/network", "networks, ports, security groups"),
    ("Volume v3", "/volume/v3/", "volumes, snapshots, types"),
    ("Placement 1.39", "/placement", "resource providers, allocations; for administrators"),
    ("Kilonova", "/kilonova/v1", "operations, plans, hosts; for administrators"),
)
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kilonova</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; color: #1b1f24 }}
  table {{ border-collapse: collapse }}
  td, th {{ text-align: left; padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid #d8dee4 }}
  pre {{ background: #f3f5f7; padding: .8rem 1rem; overflow-x: auto }}
  @media (prefers-color-scheme: dark) {{
    body {{ background: #14171a; color: #dfe3e7 }} a {{ color: #7ab7ff }} pre {{ background: #22272b }}
    td, th {{ border-color: #343b41 }}
  }}
</style>
<h1>Kilonova</h1>
<p>A compute control plane that speaks OpenStack's APIs. It is <strong>{state}</strong>.</p>
<table>
<tr><th>service</th><th>address</th><th></th></tr>
{rows}
</table>
<h2>Connect</h2>
<p>How to log in is in <code>clouds.yaml</code> in the data directory (<code>--data</code>) of the machine that runs it.
There, with the <code>openstack</code> client:</p>
<pre>export OS_CLIENT_CONFIG_FILE=<em>DATA</em>/clouds.yaml OS_CLOUD={cloud}
openstack server list --all-projects</pre>
</html>
"""


async def home(request: Request) -> Response:
    service: Service = request.app.state.service
    reason = await service.unready()
    state = f"not ready yet: {escape(reason)}" if reason else "ready"
    base = escape(service.public_url)
    rows = "\n".join(
        f'<tr><td>{name}</td><td><a href="{base}{path}">{base}{path}</a></td><td>{what}</td></tr>'
        for name, path, what in SERVICES
    )
    return HTMLResponse(PAGE.format(state=state, rows=rows, cloud=ADMIN_CLOUD))
