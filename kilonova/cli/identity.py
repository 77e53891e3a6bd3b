"""`kilonova identity …`: what an operator does with identity that OpenStack's own client has no command for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from kilonova.cli.operations import cloud_of
from kilonova.cli.options import DEFAULT_LOGIN, Login

app = App(name="identity", help="Identity of a running cloud: the keys that tokens are signed with.")


@app.command(name="rotate-keys")
def rotate_keys(
    *,
    revoke: Annotated[bool, Parameter(negative=(), help="Void every token at once; everybody logs in again.")] = False,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Sign tokens with a new key. Existing tokens stay valid until they expire, unless --revoke."""
    made = cloud_of(login).post("/token-keys", {"revoke": True} if revoke else {})
    print(f"key {made['token_key']} signs from now on" + ("; every earlier token is void" if revoke else ""))
