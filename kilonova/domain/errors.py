"""Two kinds of errors: `Refused` (nothing happened) and `Failed` (something did)."""

from typing import Any


class KilonovaError(Exception):
    """An intended error of this program; the text is written for a person."""


class Refused(KilonovaError):
    """A refused request: nothing happened. The text has the object, the number and the next action.

    `code` is for programs; each API maps it to a status. If an API prescribes the status and has no code, the status is
    given instead. `status` beside a code overrides the mapping.
    """

    def __init__(
        self,
        code: str | int,
        message: str,
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.code = code if isinstance(code, str) else ""
        self.status = status if isinstance(code, str) else code
        self.message = message
        self.headers = headers or {}
        self.details = details


class Failed(KilonovaError):
    """An attempt that failed; the engine undoes, retries or tries another host."""

    def __init__(
        self, code: str, message: str, *, elsewhere: bool = False, final: bool = False, details: Any = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.elsewhere = elsewhere  # another host may do better
        self.final = final  # trying the same again cannot help
        self.details = details  # journaled with the step, for the administrator


class NoValidHost(Failed):
    """No host fits. The owner sees this safe text; the numbers are in the verdicts."""

    def __init__(self, message: str = "No valid host was found.", details: Any = None) -> None:
        super().__init__("no_valid_host", message, final=True, details=details)


class NotKnown(Failed):
    """It was unknown for too long whether a host fits (law 18)."""

    def __init__(self, message: str, details: Any = None) -> None:
        super().__init__("not_known", message, final=True, details=details)


class Conflict(KilonovaError):
    """A compare-and-set lost: another writer changed the row first."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Superseded(Conflict):
    """The operation no longer owns the server; the one that took over is responsible."""


class StoreError(KilonovaError):
    """The database refused or failed."""


class CommitFailed(StoreError):
    """The transaction was certainly not committed."""


class Unreachable(CommitFailed):
    """The database is unreachable: nothing was read, nothing written."""


class Halted(Unreachable):
    """A database is older than others have seen it: nothing is written until `kilonova db restored` (law 15)."""


class CommitUnknown(StoreError):
    """The connection was lost during COMMIT: re-read before answering, never guess (law 12)."""


class WrongStore(StoreError):
    """A database or directory that is not the one this cloud knows by that name (law 15); nothing was changed."""


class NoAnswer(KilonovaError):
    """A request on the bus was not answered in time. That proves nothing."""


class Crowded(NoAnswer):
    """A conductor has too many requests at once; retry a little later."""


class NotYet(KilonovaError):
    """A step cannot go on for an external reason; it is retried after `seconds`, visibly waiting.

    With `for_answer`, also as soon as a database or a host answers again. With `keeps_facts`, the step's changes of the
    operation's facts are stored.
    """

    def __init__(
        self, waiting_for: str, seconds: float, *, for_answer: bool = False, keeps_facts: bool = False
    ) -> None:
        super().__init__(waiting_for)
        self.waiting_for = waiting_for
        self.seconds = seconds
        self.for_answer = for_answer
        self.keeps_facts = keeps_facts
