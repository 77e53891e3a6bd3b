"""`kilonova identity …`: what an operator does with identity that OpenStack's own client has no command for."""

from __future__ import annotations

from cyclopts import App

from kilonova.cli.options import DEFAULT_CLOUD, DEFAULT_DATA, Clouds, Data, OsCloud, Url

app = App(name="identity", help="Identity of a running cloud: the keys that tokens are signed with.")


@app.command(name="rotate-keys")
def rotate_keys(
    *, url: Url = "", data: Data = DEFAULT_DATA, clouds: Clouds = None, os_cloud: OsCloud = DEFAULT_CLOUD
) -> None:
    """Sign tokens with a new key from now on. Tokens that are out stay good until they expire."""
    from kilonova.cli.rest import Cloud

    made = Cloud(url, data, clouds, os_cloud).post("/token-keys", {})
    print(f"key {made['token_key']} signs from now on")
