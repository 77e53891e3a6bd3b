"""`kilonova identity …`: what an operator does with identity that OpenStack's own client has no command for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.cli.output import print_outcome

app = App(name="identity", help="Identity of a running cloud: the keys that tokens are signed with.")


@app.command(name="rotate-keys")
def rotate_keys(
    *,
    revoke: Annotated[bool, Parameter(negative=(), help="Void every token at once; everybody logs in again.")] = False,
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """Sign tokens with a new key. Existing tokens stay valid until they expire, unless --revoke."""
    response = login.cloud().post("/token-keys", {"revoke": True} if revoke else {})
    void = "; every earlier token is void" if revoke else ""
    print_outcome([f"key {response['token_key']} signs from now on{void}"], response, login.form)
