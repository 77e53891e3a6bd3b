"""`kilonova completion SHELL`: a script that completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

Shell = Annotated[
    Literal["bash", "zsh", "fish"],
    Parameter(help="Shell that reads it: source <(kilonova completion bash), or the file that your shell looks for."),
]


def completion(shell: Shell, /) -> None:
    """Print the completion of commands and options for a shell."""
    from kilonova.cli.main import app

    print(app.generate_completion(shell=shell))
