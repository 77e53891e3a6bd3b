"""The identity service: it logs users in, and checks tokens for every other service.

Checking is the hot path, so the caller of each token is cached in memory. Every write to identity raises a counter in
the control database. It is read again at most once a second, and immediately after a write of this process. If it has
changed, the cache is emptied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kilonova.domain.caller import Caller
from kilonova.domain.errors import KilonovaError, Refused, StoreError
from kilonova.services.identity import tokens
from kilonova.services.identity.assignments import Assignments
from kilonova.services.identity.authorization import Authorization, stands_by
from kilonova.services.identity.documents import Credentials, Policies
from kilonova.services.identity.groups import UserGroups
from kilonova.services.identity.guesses import Guess
from kilonova.services.identity.keys import Sealing, add_key, forget_keys, list_keys, signer
from kilonova.services.identity.login import (
    Login,
    Which,
    find_user,
    has_password,
    settle,
    unauthorized,
    void_token,
)
from kilonova.services.identity.passwords import Passwords
from kilonova.services.identity.projects import DEFAULT_DOMAIN, PROJECT, Projects
from kilonova.services.identity.records import IdentityRecords
from kilonova.services.identity.registry import CatalogServices, Endpoints, Regions
from kilonova.services.identity.revocations import revoke
from kilonova.services.identity.roles import Roles
from kilonova.services.identity.seed import FirstCloud, FirstKey, seed
from kilonova.services.identity.snapshot import IdentitySnapshot, take, version_and_time
from kilonova.services.identity.tokens import TokenClaims
from kilonova.services.identity.users import Users
from kilonova.world import Clock, Ids, Row, Store, Tx

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOOK_SECONDS = 1.0  # the age of the cache at which another process's write must be noticed
MOST_CACHED = 5_000  # callers in memory, about 1 kB each


@dataclass(frozen=True)
class Issued:
    token: str
    claims: TokenClaims
    standing: Authorization


class Identity:
    def __init__(
        self,
        control: Store,
        clock: Clock,
        ids: Ids,
        *,
        seal: Sealing,
        new_secret: Callable[[], str],
        expiration: float = 3600.0,
        failed_logins: int = 0,
    ) -> None:
        """`new_secret` makes 32 random bytes in URL-safe base64; a token is good for `expiration` seconds.
        `failed_logins` a minute are allowed to a user and address; 0: any number."""
        self._control, self._clock, self._ids = control, clock, ids
        self._seal, self._new_secret, self._expiration = seal, new_secret, expiration
        self._snapshot = IdentitySnapshot()
        self._looked = float("-inf")  # by the monotonic clock
        self._ahead = 0.0  # the database's clock is, of the monotonic one
        self._is_stale = True
        self._looking = asyncio.Lock()
        self._callers: dict[str, Caller] = {}
        self._passwords = Passwords(failed_logins)
        self.records = IdentityRecords(control, ids, self._changed)
        self.projects = Projects(self.records)
        self.users = Users(self.records, self._passwords)
        self.groups = UserGroups(self.records)
        self.roles = Roles(self.records)
        self.assignments = Assignments(self.records, lambda: self._snapshot)
        self.services = CatalogServices(self.records)
        self.endpoints = Endpoints(self.records)
        self.regions = Regions(self.records)
        self.credentials = Credentials(self.records, seal)
        self.policies = Policies(self.records)

    # -- tokens -------------------------------------------------------------------------------------------------------

    async def check(self, token: str) -> Caller | None:
        """Return the caller of this token; None if it is unknown, expired or revoked."""
        if self._is_stale or self._clock.monotonic() - self._looked >= LOOK_SECONDS:
            await self.look()
        now = self._now()
        caller = self._callers.get(token)
        if caller is None:
            caller = await self._admit(token, now)
        elif caller.expires_at <= now:
            del self._callers[token]
            return None
        return caller

    async def _admit(self, token: str, now: float) -> Caller | None:
        snapshot, issued = await self._weigh(token, now)
        if issued is None:
            return None
        caller = issued.standing.caller(issued.claims)
        if snapshot is self._snapshot and not self._is_stale:  # else something was written since it was read
            if len(self._callers) >= MOST_CACHED:
                del self._callers[next(iter(self._callers))]
            self._callers[token] = caller
        return caller

    async def authenticate(self, login: Login) -> Issued:
        """Issue a token. Raise `Refused`: unauthorized, too_many_logins, or not_found for a token that is no longer
        valid."""
        try:
            return await self._authenticate(login)
        except Refused as why:
            who = login.user or Which()
            text = "login refused: user=%r domain=%r address=%s reason=%s"
            logger.warning(
                text, (who.id or who.name)[:80], (who.domain_id or who.domain_name)[:80], login.address, why.code
            )
            raise

    async def _authenticate(self, login: Login) -> Issued:
        await self.look()
        began = self._now()
        earlier = self._snapshot.read(login.token, began, self._expiration) if login.token else None
        if login.token and earlier is None:
            raise void_token()
        proven = await self._proven(login.user, login.password, login.address) if login.user is not None else None
        if login.user is not None and proven is None:
            raise unauthorized()
        user_id = str(proven["id"]) if proven is not None else earlier.user_id if earlier is not None else ""

        async def body(tx: Tx, snapshot: IdentitySnapshot) -> tuple[float, Authorization]:
            """Check the proofs again: checking a password takes time, and they may have expired meanwhile."""
            if earlier is not None and await self._worth(tx, snapshot, login.token, began) is None:
                raise void_token()
            standing = await settle(tx, snapshot, user_id, login)
            if earlier is not None and earlier.user_id != user_id:
                raise unauthorized()
            if proven is not None and not await has_password(tx, user_id, proven["password"]):
                raise unauthorized()
            return await tx.now(), standing

        snapshot, (now, standing) = await self._in_step(body)
        audit_id, latest = tokens.audit_id_of(self._ids.uuid()), now + self._expiration
        claims = TokenClaims(
            user_id,
            standing.scope,
            tuple(dict.fromkeys((*login.methods, *(earlier.methods if earlier else ())))),
            issued_at=now,
            expires_at=latest if earlier is None else min(latest, earlier.expires_at),
            audit_ids=(audit_id,) if earlier is None else (audit_id, earlier.audit_ids[-1]),
        )
        return Issued(self._sign(claims, snapshot), claims, standing)

    async def inspect(self, token: str) -> Issued | None:
        """Return what a token is valid for, to those who validate it; None if it is invalid."""
        await self.look()
        return (await self._weigh(token, self._now()))[1]

    async def revoke(self, claims: TokenClaims) -> None:
        await self.records.write(lambda tx: revoke(tx, claims))

    async def is_password(self, user: Which, password: str) -> bool:
        return await self._proven(user, password) is not None

    # -- the first cloud, keys ----------------------------------------------------------------------------------------

    async def is_prepared(self) -> bool:
        """Return whether the first cloud exists."""
        await self.look()
        return self._snapshot.version > 0

    async def prepare(self, first: FirstCloud | None = None) -> bool:
        """Create the first cloud unless it exists; True if this call did. In any case there is a signing key
        afterwards."""
        has_seeded = False
        if first is not None and not await self.is_prepared():
            key = FirstKey(self._seal, self._new_secret(), self._expiration)
            has_seeded = await seed(self._control, self._ids, first, key, self._passwords)
            self._changed(None)
        await self.look()
        if self._snapshot.version > 0 and not self._snapshot.keys:
            await self.rotate_keys()
        return has_seeded

    async def project_named(self, name: str, domain_id: str = DEFAULT_DOMAIN) -> str:
        """Return the project's id; empty if it does not exist (any more)."""
        matches = await self.records.page(PROJECT, {"name": name, "domain_id": domain_id})
        return str(matches[0]["id"]) if matches else ""

    async def rotate_keys(self, *, revoke: bool = False) -> str:
        """Sign with a new key from now on. The old ones check until their last token has expired; with `revoke` they
        are removed at once, for a key that may be compromised."""
        uuid, secret = self._ids.uuid(), self._new_secret()

        async def body(tx: Tx) -> str:
            return await add_key(tx, self._seal, uuid=uuid, secret=secret, expiration=self._expiration, revoke=revoke)

        return await self.records.write(body)

    async def keys(self) -> Sequence[Row]:
        return await self._control.read(list_keys)

    @property
    def snapshot(self) -> IdentitySnapshot:
        return self._snapshot

    # -- within -------------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Bring the cache in memory up to date."""
        async with self._looking:
            began = self._clock.monotonic()
            if not self._is_stale and began - self._looked < LOOK_SECONDS:
                return  # another request has looked while this one waited
            self._is_stale = False  # a write from here on makes it stale again
            try:
                await self._in_step(_nothing)
            except BaseException:
                self._is_stale = True
                raise
            self._looked = began
            await self._drop_old_keys(self._now())

    def _now(self) -> float:
        """Return the control database's time: tokens and keys are dated by it, on whatever machine checks them."""
        return self._clock.monotonic() + self._ahead

    async def _in_step(self, body: Callable[[Tx, IdentitySnapshot], Awaitable[T]]) -> tuple[IdentitySnapshot, T]:
        """Read with the snapshot of the same version; if it is outdated, take a new one in the same transaction."""
        known, seal = self._snapshot, self._seal

        async def whole(tx: Tx) -> tuple[float, IdentitySnapshot, T]:
            version, now = await version_and_time(tx)
            snapshot = known if version == known.version else await take(tx, seal)
            return now, snapshot, await body(tx, snapshot)

        began = self._clock.monotonic()
        now, snapshot, value = await self._control.read(whole, few=True)
        self._ahead = now - began
        if snapshot.version > self._snapshot.version:
            self._snapshot = snapshot
            self._callers.clear()
        return snapshot, value

    def _changed(self, version: int | None) -> None:
        """Empty the cache: this process has written, or perhaps has."""
        self._is_stale = True
        self._callers.clear()

    async def _drop_old_keys(self, now: float) -> None:
        """Remove expired keys from memory and from the database. They already verify nothing."""
        left = self._snapshot.without_keys_past(now)
        if left is self._snapshot:
            return
        self._snapshot = left
        try:
            await self._control.write(forget_keys)
        except KilonovaError as error:  # never refuses the holder of a token; the next rotation removes the keys
            logger.warning("expired token keys could not be removed: %s", error)

    async def _weigh(self, token: str, now: float) -> tuple[IdentitySnapshot, Issued | None]:
        if self._snapshot.read(token, now, self._expiration) is None:
            return self._snapshot, None  # a stranger's guess costs no question to the database
        return await self._in_step(lambda tx, snapshot: self._worth(tx, snapshot, token, now))

    async def _worth(self, tx: Tx, snapshot: IdentitySnapshot, token: str, now: float) -> Issued | None:
        """Check a token by the current keys: those in memory may include one that was revoked within a second."""
        claims = snapshot.read(token, now, self._expiration)
        standing = None if claims is None else await stands_by(tx, snapshot, claims)
        return None if claims is None or standing is None else Issued(token, claims, standing)

    def _sign(self, claims: TokenClaims, snapshot: IdentitySnapshot) -> str:
        key = signer(snapshot.keys, claims.issued_at)
        if key is None:
            raise StoreError("there is no token key; the first cloud has not been created yet")
        return tokens.sign(claims, key.id, key.secret)

    async def _proven(self, user: Which, password: str, address: str = "") -> Row | None:
        """Return the user if the password is right."""
        row = await self._control.read(lambda tx: find_user(tx, user))
        stored_hash = row["password"] if row is not None and row["enabled"] else None
        guess = Guess(str(row["id"]) if row is not None else user.key, address) if address else None
        return row if await self._passwords.matches(password, stored_hash, guess) else None


async def _nothing(tx: Tx, snapshot: IdentitySnapshot) -> None:
    return None
