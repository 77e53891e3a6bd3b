"""An operating system in one sector: it counts its boots on its disk, says so on the serial line, and echoes input.

It boots in a blink where Linux under TCG takes seconds, and needs nothing but this file.
"""

from __future__ import annotations

SECTOR = 512
COUNTER, TEXT = 0x7E00, 0x7E10  # where the second sector is read to: the number of boots, then a text

_START = bytes.fromhex("fa 31c0 8ed8 8ec0 8ed0 bc007c fb fc")  # segments 0, stack below the sector itself
_READ = bytes.fromhex("b80102 bb007e b90200 b600 cd13")  # BIOS: one sector, the second, to COUNTER
_COUNT = bytes.fromhex("fe06007e")  # inc byte [COUNTER]
_WRITE = bytes.fromhex("b80103 bb007e b90200 b600 cd13")
_TAKE = bytes.fromhex("bafd03 ec a801 7503 f4 ebf5 baf803 ec")  # wait (halted) for a letter on COM1: to al
_AGAIN = bytes.fromhex("ebec")  # after the call that puts it back
_PUT = bytes.fromhex("50 bafd03 ec a820 74fb 58 baf803 ee c3")  # when the line is free: al to COM1


def image(text: str, *, sectors: int = 2048) -> bytes:
    """A disk that says `KILONOVA-GUEST boot=N root=TEXT`, N one more each time."""
    boot = _program()
    data = bytearray(SECTOR)
    data[0] = ord("0")
    data[TEXT - COUNTER : TEXT - COUNTER + len(text) + 1] = text.encode() + b"\0"
    return (boot + bytes(data)).ljust(sectors * SECTOR, b"\0")


def _program() -> bytes:
    words = [b"KILONOVA-GUEST boot=\0", b" root=\0", b"\r\n\0"]
    before = _START + _READ + _COUNT + _WRITE
    body_length = 4 * 6 + (3 + 3) + len(_TAKE) + 3 + len(_AGAIN)  # four texts, one letter, and the echo
    show_at = len(before) + body_length
    put_at = show_at + 11
    words_at = [put_at + len(_PUT) + sum(len(word) for word in words[:n]) for n in range(len(words))]
    code = bytearray(before)
    _say(code, 0x7C00 + words_at[0], show_at)
    code += b"\xa0" + COUNTER.to_bytes(2, "little")  # mov al, [COUNTER]
    _call(code, put_at)
    for where in (0x7C00 + words_at[1], TEXT, 0x7C00 + words_at[2]):
        _say(code, where, show_at)
    code += _TAKE
    _call(code, put_at)
    code += _AGAIN
    assert len(code) == show_at
    code += b"\xac\x84\xc0\x74\x05"  # show: lodsb; test al, al; jz its ret
    _call(code, put_at)
    code += b"\xeb\xf6\xc3"  # again; ret
    assert len(code) == put_at
    code += _PUT + b"".join(words)
    return bytes(code).ljust(SECTOR - 2, b"\0") + b"\x55\xaa"


def _say(code: bytearray, where: int, show_at: int) -> None:
    code += b"\xbe" + where.to_bytes(2, "little")  # mov si, where
    _call(code, show_at)


def _call(code: bytearray, to: int) -> None:
    code += b"\xe8" + ((to - len(code) - 3) & 0xFFFF).to_bytes(2, "little")
