"""`kilonova image …`: images of a running cloud, where the openstack client has no command."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions
from kilonova.cli.output import print_outcome
from kilonova.cli.rest import segment
from kilonova.domain.errors import Refused

app = App(name="image", help="Images of a running cloud: quota.")
GIBIBYTE = 1024**3


@app.command
def quota(
    project: Annotated[str, Parameter(help="Id of the project.")],
    /,
    *,
    gigabytes: Annotated[int | None, Parameter(help="GB of images that the project may have; -1 for no limit.")] = None,
    default: Annotated[bool, Parameter(help="Let [image] quota_bytes count again.", negative="")] = False,
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """Show how many bytes of images a project (by id) has and may have, or set it."""
    if default and gigabytes is not None:
        raise Refused("usage", "give --gigabytes or --default, not both")
    path = f"/image-quotas/{segment(project)}"
    if default or gigabytes is not None:
        limit = None if gigabytes is None else gigabytes * GIBIBYTE if gigabytes >= 0 else -1
        quota = login.cloud().post(path, {"limit": limit})["image_quota"]
    else:
        quota = login.cloud().get(path)["image_quota"]
    most = "no limit" if quota["limit"] < 0 else f"{quota['limit']} bytes"
    sentence = f"{quota['project']}: {quota['used']} bytes in {quota['images']} images; {most}"
    print_outcome([sentence], quota, login.form)
