"""Take secrets out of what is kept of a turn, also where white space or an edge cuts them in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MASK = b"[masked]"
PIECE = 12  # a piece of a secret of at least so many bytes counts as the secret
_SPACE = b" \t\n\r\v\f"
_WORD = re.compile(rb"[^ \t\n\r\v\f]+")

Span = tuple[int, int]


def mask_from(data: bytes, first: int, secrets: Sequence[str]) -> bytes:
    """The data from byte `first` on, masked with an eye to what stands before: a secret may begin there."""
    spans = [(max(begin, first), end) for begin, end in _spans(data, secrets) if end > first]
    return _replaced(data[first:], [(begin - first, end - first) for begin, end in spans])


def mask(data: bytes, secrets: Sequence[str]) -> bytes:
    """The data with every secret replaced by a fixed mark: whole, with white space in it, or a piece of its second half.

    The first half of a key alone is no secret: it names the kind of key and what it is for. At the very end it is
    masked as well, since there the second half may be on its way.
    """
    spans = _spans(data, secrets)
    return _replaced(data, spans) if spans else data


def _spans(data: bytes, secrets: Sequence[str]) -> list[Span]:
    """Where the secrets stand, in order and apart from each other."""
    dense = data.translate(None, _SPACE)
    plain = [secret.encode("utf-8", "replace").translate(None, _SPACE) for secret in secrets]
    spans = [span for secret in filter(None, plain) for span in _places(dense, secret)]
    if spans and len(dense) < len(data):
        spans = list(_with_space(data, _merged(spans)))
    return _merged(spans)


def mask_text(text: str, secrets: Sequence[str]) -> str:
    """`mask` for text without lone surrogates."""
    if not any(secrets):
        return text
    data = text.encode()
    masked = mask(data, secrets)
    return text if masked is data else masked.decode("utf-8", "replace")


def _places(dense: bytes, secret: bytes) -> Iterator[Span]:
    yield from _pieces(dense, secret)
    yield from _begun_at_the_end(dense, secret)


def _pieces(dense: bytes, secret: bytes) -> Iterator[Span]:
    """Where pieces of the secret stand, each as far as it agrees with the secret in both directions."""
    left = bytearray(dense)
    first = min(len(secret) // 2, max(0, len(secret) - PIECE))
    for offset in range(first, max(first, len(secret) - PIECE) + 1):
        part = secret[offset : offset + PIECE]
        at = left.find(part)
        while at >= 0:
            begin = at - _agreement(secret[:offset][::-1], left[max(0, at - offset) : at][::-1])
            end = at + _agreement(secret[offset:], left[at : at + len(secret) - offset])
            yield begin, end
            left[begin:end] = bytes(end - begin)  # so that none of its other parts is found again
            at = left.find(part, end)


def _agreement(one: bytes, other: bytes | bytearray) -> int:
    """How many bytes at the beginning of both are the same."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _begun_at_the_end(dense: bytes, secret: bytes) -> Iterator[Span]:
    for length in range(len(secret) - 1, PIECE - 1, -1):
        if dense.endswith(secret[:length]):
            yield len(dense) - length, len(dense)
            return


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that overlap made one."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _with_space(data: bytes, spans: list[Span]) -> Iterator[Span]:
    """The same places in the data that still has its white space."""
    wanted = iter([position for begin, end in spans for position in (begin, end - 1)])
    found: list[int] = []
    seen, position = 0, next(wanted, None)
    for word in _WORD.finditer(data):
        length = word.end() - word.start()
        while position is not None and position < seen + length:
            found.append(word.start() + position - seen)
            position = next(wanted, None)
        seen += length
        if position is None:
            break
    for begin, last in zip(found[::2], found[1::2], strict=True):
        yield begin, last + 1


def _replaced(data: bytes, spans: list[Span]) -> bytes:
    kept, at = [], 0
    for begin, end in spans:
        kept += [data[at:begin], MASK]
        at = end
    return b"".join([*kept, data[at:]])
