"""Passwords: kept as argon2 hashes, checked in a thread. A wrong user costs as much time as a wrong password."""

from __future__ import annotations

from typing import Any

from kilonova.domain.errors import Refused
from kilonova.services.identity.guesses import Guess, Guesses, Turns
from kilonova.threads import PASSWORDS

LONGEST = 4096  # characters, as Keystone's limit

# 19 MiB and two passes: the least that OWASP recommends for argon2id, 20 to 30 ms on one core of 2024. Every command of
# the openstack client logs in again, so more would be felt; less would be cheap to guess from a stolen database.
MEMORY_KIB, PASSES, LANES = 19456, 2, 1
AT_ONCE = 2  # 19 MiB each while it is checked: a flood of logins may not eat the memory of the whole cloud

# The hash of an unknown password: an unknown user's password is compared with it, so that it takes as long.
NOBODY = (
    f"$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}"
    "$c2FsdCBvZiBub2JvZHkhIQ$dGhlcmUgaXMgbm8gc3VjaCBwYXNzd29yZCBhbnl3aGU"
)


def refuse_long(password: str) -> None:
    if len(password) > LONGEST:
        raise Refused("bad_request", f"the password has {len(password)} characters; at most {LONGEST} are allowed")


class Passwords:
    def __init__(self, failed_logins: int = 0) -> None:
        """`failed_logins` a minute are allowed to a user and address; 0: any number."""
        self._hasher: Any = None
        self._turns = Turns(AT_ONCE)
        self._guesses = Guesses(failed_logins)

    async def hash(self, password: str) -> str:
        refuse_long(password)
        hasher = self._loaded()
        async with self._turns.of(""):
            return str(await PASSWORDS.run(hasher.hash, password))

    async def matches(self, password: str, stored_hash: str | None, guess: Guess | None = None) -> bool:
        """Compare a password. `stored_hash` is None if the user does not exist or has no password.

        Raise `Refused`, without comparing, if the user and address of `guess` had too many wrong passwords.
        """
        refuse_long(password)
        self._guesses.refuse_blocked(guess)
        hasher = self._loaded()

        def compare() -> bool:
            import argon2

            try:
                hasher.verify(stored_hash or NOBODY, password)
            except argon2.exceptions.VerificationError:
                return False
            except argon2.exceptions.InvalidHashError:
                return False
            return stored_hash is not None

        async with self._turns.of(guess.address if guess is not None else ""):
            self._guesses.refuse_blocked(guess)  # again: those that were compared meanwhile count
            is_right = await PASSWORDS.run(compare)
            self._guesses.note(guess, is_right=is_right)
        return is_right

    def _loaded(self) -> Any:
        """Import argon2 on first use: it takes 80 ms."""
        if self._hasher is None:
            from argon2 import PasswordHasher

            self._hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)
        return self._hasher
