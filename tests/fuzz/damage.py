"""Seeded damage to the bytes of a file."""

KINDS = ("bit", "bytes", "cut", "zeros", "insert", "more", "swap", "nothing left")


def damaged(content, kind, draw):
    """Bytes, at least one, damaged in one of ``KINDS``; now and then as they were."""
    at = draw.randrange(len(content))
    if kind == "bit":
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if kind == "bytes":
        other = bytearray(content)
        for _ in range(draw.randrange(2, 30)):
            other[draw.randrange(len(other))] = draw.randrange(256)
        return bytes(other)
    if kind == "cut":
        return content[:at]
    if kind == "zeros":
        size = min(draw.randrange(1, 5000), len(content) - at)
        return content[:at] + bytes(size) + content[at + size :]
    if kind == "insert":
        return content[:at] + draw.randbytes(draw.randrange(1, 200)) + content[at:]
    if kind == "more":
        return content + draw.randbytes(draw.randrange(1, 200))
    if kind == "nothing left":
        return draw.choice(
            [b"", b"\x89HDF\r\n\x1a\n", b"\x93NUMPY", draw.randbytes(50), b"{", b"e"]
        )
    low, high = sorted((at, draw.randrange(len(content))))
    size = min(high - low, len(content) - high, 300)
    return (
        content[:low] + content[high : high + size] + content[low + size : high]
        + content[low : low + size] + content[high + size :]
    )  # fmt: skip
