"""The door to identity: logs people in, and checks tokens for every other service.

Checking is the hot path, so who a token speaks for is kept in memory. A counter in the control database is raised by
every write to identity; here it is read again at most once a second, and at once after a write of our own. Another
counter: everything that was kept is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kilonova.domain.caller import Caller
from kilonova.domain.errors import StoreError
from kilonova.services.identity import tokens
from kilonova.services.identity.assignments import Assignments
from kilonova.services.identity.documents import Credentials, Policies
from kilonova.services.identity.first import FirstCloud, FirstKey, seed
from kilonova.services.identity.groups import Groups
from kilonova.services.identity.keys import Sealing, add_key, list_keys, signer
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
from kilonova.services.identity.records import Records
from kilonova.services.identity.registry import Endpoints, Regions, Services
from kilonova.services.identity.revocations import revoke
from kilonova.services.identity.roles import Roles
from kilonova.services.identity.snapshot import Snapshot, take, version_of
from kilonova.services.identity.standing import Standing, stands_by
from kilonova.services.identity.tokens import Claims
from kilonova.services.identity.users import Users
from kilonova.world import Clock, Ids, Row, Store, Tx

T = TypeVar("T")
LOOK_SECONDS = 1.0  # after so long somebody else's write is noticed
MOST_KEPT = 5_000  # callers in memory, about 1 kB each


@dataclass(frozen=True)
class Issued:
    token: str
    claims: Claims
    standing: Standing


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
    ) -> None:
        """`new_secret` makes 32 random bytes in URL-safe base64; a token is good for `expiration` seconds."""
        self._control, self._clock, self._ids = control, clock, ids
        self._seal, self._new_secret, self._expiration = seal, new_secret, expiration
        self._snapshot = Snapshot()
        self._looked = 0.0
        self._is_stale = True
        self._looking = asyncio.Lock()
        self._callers: dict[str, Caller] = {}
        self._passwords = Passwords()
        self.records = Records(control, ids, self._changed)
        self.projects = Projects(self.records)
        self.users = Users(self.records, self._passwords)
        self.groups = Groups(self.records)
        self.roles = Roles(self.records)
        self.assignments = Assignments(self.records, lambda: self._snapshot)
        self.services = Services(self.records)
        self.endpoints = Endpoints(self.records)
        self.regions = Regions(self.records)
        self.credentials = Credentials(self.records, seal)
        self.policies = Policies(self.records)

    # -- tokens -------------------------------------------------------------------------------------------------------

    async def check(self, token: str) -> Caller | None:
        """Who this token speaks for; None when it is unknown, expired or revoked."""
        now = self._clock.now()
        if self._is_stale or abs(now - self._looked) >= LOOK_SECONDS:
            await self.look()
        caller = self._callers.get(token)
        if caller is None:
            caller = await self._admit(token, now)
        elif caller.expires_at <= now:
            del self._callers[token]
            return None
        return caller

    async def _admit(self, token: str, now: float) -> Caller | None:
        claims = self._read(token, now)
        if claims is None:
            return None
        snapshot, standing = await self._in_step(lambda tx, snapshot: stands_by(tx, snapshot, claims))
        if standing is None:
            return None
        caller = standing.caller(claims)
        if snapshot is self._snapshot and not self._is_stale:  # else something was written since it was read
            if len(self._callers) >= MOST_KEPT:
                del self._callers[next(iter(self._callers))]
            self._callers[token] = caller
        return caller

    async def authenticate(self, login: Login) -> Issued:
        """Raises `Refused`: unauthorized, or not_found for a token that is no longer good."""
        await self.look()
        earlier = self._read(login.token, self._clock.now()) if login.token else None
        if login.token and earlier is None:
            raise void_token()
        proven = await self._proven(login.user, login.password) if login.user is not None else None
        if login.user is not None and proven is None:
            raise unauthorized()
        user_id = str(proven["id"]) if proven is not None else earlier.user_id if earlier is not None else ""

        async def body(tx: Tx, snapshot: Snapshot) -> tuple[float, Standing]:
            """The proofs once more: checking a password takes time, and what it proved may be over by now."""
            if earlier is not None and await stands_by(tx, snapshot, earlier) is None:
                raise void_token()
            standing = await settle(tx, snapshot, user_id, login)
            if earlier is not None and earlier.user_id != user_id:
                raise unauthorized()
            if proven is not None and not await has_password(tx, user_id, proven["password"]):
                raise unauthorized()
            return await tx.now(), standing

        snapshot, (now, standing) = await self._in_step(body)
        audit_id = tokens.audit_id_of(self._ids.uuid())
        claims = Claims(
            user_id,
            standing.scope,
            tuple(dict.fromkeys((*login.methods, *(earlier.methods if earlier else ())))),
            issued_at=now,
            expires_at=now + self._expiration if earlier is None else earlier.expires_at,
            audit_ids=(audit_id,) if earlier is None else (audit_id, earlier.audit_ids[-1]),
        )
        return Issued(self._sign(claims, snapshot), claims, standing)

    async def inspect(self, token: str) -> Issued | None:
        """What a token is worth, for those who ask about it; None: nothing."""
        await self.look()
        claims = self._read(token, self._clock.now())
        if claims is None:
            return None
        _, standing = await self._in_step(lambda tx, snapshot: stands_by(tx, snapshot, claims))
        return None if standing is None else Issued(token, claims, standing)

    async def revoke(self, claims: Claims) -> None:
        await self.records.write(lambda tx: revoke(tx, claims))

    async def is_password(self, user: Which, password: str) -> bool:
        return await self._proven(user, password) is not None

    # -- the first cloud, keys ----------------------------------------------------------------------------------------

    async def is_prepared(self) -> bool:
        """The first cloud is there."""
        await self.look()
        return self._snapshot.version > 0

    async def prepare(self, first: FirstCloud | None = None) -> bool:
        """Makes the first cloud unless somebody has; True if we did. In any case there is a key to sign with then."""
        made = False
        if first is not None and not await self.is_prepared():
            key = FirstKey(self._seal, self._new_secret(), self._expiration)
            made = await seed(self._control, self._ids, first, key, self._passwords)
            self._changed(None)
        await self.look()
        if self._snapshot.version > 0 and not self._snapshot.keys:
            await self.rotate_keys()
        return made

    async def project_named(self, name: str, domain_id: str = DEFAULT_DOMAIN) -> str:
        """Its id; empty when there is none (any more)."""
        found = await self.records.page(PROJECT, {"name": name, "domain_id": domain_id})
        return str(found[0]["id"]) if found else ""

    async def rotate_keys(self) -> str:
        """A new key signs from now on; the old one checks until its last token has expired."""
        uuid, secret = self._ids.uuid(), self._new_secret()
        return await self.records.write(
            lambda tx: add_key(tx, self._seal, uuid=uuid, secret=secret, expiration=self._expiration)
        )

    async def keys(self) -> Sequence[Row]:
        return await self._control.read(list_keys)

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    # -- within -------------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Makes sure that what is kept in memory is of now."""
        async with self._looking:
            now = self._clock.now()
            if not self._is_stale and abs(now - self._looked) < LOOK_SECONDS:
                return  # another request has looked while this one waited
            self._is_stale = False  # a write from here on makes it stale again
            try:
                await self._in_step(_nothing)
            except BaseException:
                self._is_stale = True
                raise
            self._looked = now

    async def _in_step(self, body: Callable[[Tx, Snapshot], Awaitable[T]]) -> tuple[Snapshot, T]:
        """Reads with the snapshot of the same version, which is taken anew in the same transaction if need be."""
        known, seal = self._snapshot, self._seal

        async def whole(tx: Tx) -> tuple[Snapshot, T]:
            snapshot = known if await version_of(tx) == known.version else await take(tx, seal)
            return snapshot, await body(tx, snapshot)

        snapshot, found = await self._control.read(whole, few=True)
        if snapshot.version > self._snapshot.version:
            self._snapshot = snapshot
            self._callers.clear()
        return snapshot, found

    def _changed(self, version: int | None) -> None:
        """We have written, or perhaps have."""
        self._is_stale = True
        self._callers.clear()

    def _read(self, token: str, now: float) -> Claims | None:
        claims = tokens.read(token, self._snapshot.secrets)
        return claims if claims is not None and claims.expires_at > now else None

    def _sign(self, claims: Claims, snapshot: Snapshot) -> str:
        key = signer(snapshot.keys, claims.issued_at)
        if key is None:
            raise StoreError("there is no key to sign tokens with; the first cloud is not made yet")
        return tokens.sign(claims, key.id, key.secret)

    async def _proven(self, user: Which, password: str) -> Row | None:
        """The user, if the password is right."""
        row = await self._control.read(lambda tx: find_user(tx, user))
        kept = row["password"] if row is not None and row["enabled"] else None
        return row if await self._passwords.matches(password, kept) else None


async def _nothing(tx: Tx, snapshot: Snapshot) -> None:
    return None
