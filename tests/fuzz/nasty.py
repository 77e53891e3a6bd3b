"""What nobody should send, and somebody will: values, bodies, pieces of addresses, names and texts of queries."""

from __future__ import annotations

from typing import Any

UUID = "00000000-0000-4000-8000-000000000000"
DEEP = 5_000
NESTED = {f"nested {depth}": b"[" * depth + b"]" * depth for depth in (100, 500, 900, 1_100, 20_000)}
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", " ", "\x00", "a\x00b", "\ud800", "\udfff\ud800", "\u202e", "é😀", "\n", "a" * 300, "a" * 70_000, "1" * 5_000),
    *("true", "null", "-1", "0x10", "1e5", "½", "١٢", "../../etc", "' OR 1=1 --", "%s%n{0}", "${x}", UUID, "0.0.0.0/0"),
    *([], [[]], ["a"] * 3, {}, {"a": {"b": []}}, {"": ""}, {"\x00": 1}, [None], list(range(1000))),
    *NESTED,  # stand for themselves: see `encoded`
]
BODIES = [
    *(b"{", b"}", b"null", b"true", b"0", b'""', b"[]", b"{}", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"NaN", b"'a'"),
    *(b'{"a":1,}', b'{"a":1}{"a":1}', b'{"\xff":1}', b'{"a":"\x01"}', b'"\\ud800"', b'{"a":1e999999}', b"\x00", b" "),
    *(b"[" * 100_000, b'{"a":' * 50_000, b"[" * DEEP + b"]" * DEEP, b"{" + b" " * 200_000 + b"}", b"a=b&c=d"),
    *('{"a":1}'.encode("utf-16"), b'{"a":' + b"9" * 100_000 + b"}", b'"' + b"a" * 2_000_000 + b'"'),
]
SEGMENTS = [
    *("%00", "a%00b", "%ff", "%ed%a0%80", "%2e%2e", "..%2f..%2fetc", "%2f", "%", "%zz", "a" * 5_000, "%F0%9F%98%80"),
    *(
        "0",
        "-1",
        "1e3",
        "9" * 400,
        "null",
        "'%20OR%201=1",
        UUID,
        UUID.replace("-", ""),
        UUID.upper(),
        "%20",
        "%0a",
        "*",
    ),
    *("%D9%A1", "%C2%B2", "detail", "action", "%7B%7D", "\xe9\xff", "a%3Bb", "a?b", ".", ".."),
]
PAGING = ["limit", "marker", "sort_key", "sort_dir"]
NAMES = [
    *(
        "limit",
        "marker",
        "sort_key",
        "sort_dir",
        "sort",
        "fields",
        "page_reverse",
        "name",
        "id",
        "status",
        "all_tenants",
    ),
    *("changes-since", "changes-before", "created_at", "updated_at", "deleted", "tags", "not-tags-any", "ip", "tag"),
    *("project_id", "tenant_id", "user_id", "domain_id", "enabled", "is_public", "minRam", "minDisk", "visibility"),
    *("size_min", "member_status", "protected", "os_hidden", "reserved", "with_servers", "host", "binary", "locked"),
    *(
        "hypervisor_hostname_pattern",
        "server",
        "state",
        "version",
        "include_names",
        "effective",
        "role.id",
        "scope.system",
    ),
    *(
        "fixed_ips",
        "revision_number",
        "mac_address",
        "admin_state_up",
        "shared",
        "limit[]",
        "__class__",
        "",
        "é",
        "a%00",
    ),
]
TEXTS = [
    *(
        "",
        "0",
        "1",
        "-1",
        "00",
        "+5",
        "1.0",
        "1e3",
        "٣",
        "²",
        "9" * 20,
        "9" * 5_000,
        "abc",
        "true",
        "False",
        "None",
        "null",
    ),
    *(
        "0001-01-01",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "2020-02-30",
        "2020-01-01T00:00:00Z",
        "T",
    ),
    *("gt:2020-01-01", "in:", 'in:"', 'in:"a', "in:a,b", "neq:", "eq:", ":", ",", "asc", "desc", "sideways", "name:up"),
    *(
        "(",
        "[",
        "(a+)+$",
        "a{9999}",
        "\\",
        "(?P<a>",
        "^(a|a)*$",
        "%",
        "_",
        "'",
        '"',
        "\x00",
        "\ud800",
        "😀",
        "a" * 9_000,
    ),
    *(UUID, "ip_address=1.2.3.4", "ip_address_substr=1", "subnet_id=", "2" * 19, "-" + "9" * 19, "::", "1.2.3.4/33"),
]
HEADERS = [
    *(
        ("openstack-api-version", text)
        for text in ("compute", "compute 2", "compute 2.1.1", "compute -1.0", "compute 2.x")
    ),
    *(("openstack-api-version", text) for text in ("compute 2." + "9" * 400, "compute 3.0", "compute 2.0", ",,,", "é")),
    *(("x-openstack-nova-api-version", text) for text in ("", "latest", "2.²", "999999999999.1", "2.1\x00", "ÿ")),
    *(("x-auth-token", text) for text in ("ÿÿ", "a" * 9_000, "gAAAAA", ".", "..", "a.b.c", "é.é.é", "=" * 50)),
    *(("x-subject-token", text) for text in ("ÿÿ", "a.b.c", "", "=")),
    *(("idempotency-key", text) for text in ("", "a" * 256, "ÿ", "\x01", " ", "a" * 9_000)),
    *(
        ("content-type", text)
        for text in ("", ";", "text/plain", "application/json; charset=ÿ", "application/x+json", "ÿ")
    ),
    *(("content-type", text) for text in ("application/octet-stream", "multipart/form-data; boundary=a", "a" * 5_000)),
    *(
        ("range", text)
        for text in ("bytes=5-1", "bytes=-", "bytes=" + "9" * 400 + "-", "bytes=0-1,3-4", "ÿ", "bytes=²-")
    ),
    *(("x-openstack-image-size", text) for text in ("-1", "9" * 30, "²", "ÿ", "5")),
    *(("x-openstack-request-id", "req-" + "a" * 500), ("accept", "ÿ"), ("accept", "text/html"), ("cookie", "ÿ=ÿ")),
    *(
        ("expect", "100-continue"),
        ("host", "evil\r\nx: y"),
        ("x-forwarded-proto", "ÿ"),
        ("openstack-system-scope", "all"),
    ),
]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get", ""]
