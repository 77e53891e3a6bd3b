"""`python metadata.py DIRECTORY`: answers one HTTP request on its standard input with a file, as QEMU calls it."""

import sys
from pathlib import Path

_, path, *_ = sys.stdin.readline().split()
while sys.stdin.readline().strip():
    pass
root = Path(sys.argv[1]).resolve()
file = (root / path.lstrip("/")).resolve()
found = file.is_relative_to(root) and file.is_file()
body = file.read_bytes() if found else b""
status = "200 OK" if found else "404 Not Found"
sys.stdout.buffer.write(f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
