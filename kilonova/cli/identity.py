"""`kilonova identity …`: what an operator does with identity that OpenStack's own client has no command for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_CLOUD, DEFAULT_DATA, Clouds, Data, OsCloud, Url

app = App(name="identity", help="Identity of a running cloud: the keys that tokens are signed with.")


@app.command(name="rotate-keys")
def rotate_keys(
    *,
    revoke: Annotated[bool, Parameter(negative=(), help="Void every token at once; everybody logs in again.")] = False,
    url: Url = "",
    data: Data = DEFAULT_DATA,
    clouds: Clouds = None,
    os_cloud: OsCloud = DEFAULT_CLOUD,
) -> None:
    """Sign tokens with a new key from now on. Tokens that are out stay good until they expire, unless --revoke."""
    from kilonova.cli.rest import Cloud

    made = Cloud(url, data, clouds, os_cloud).post("/token-keys", {"revoke": True} if revoke else {})
    print(f"key {made['token_key']} signs from now on" + ("; every earlier token is void" if revoke else ""))
