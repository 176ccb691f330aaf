"""A resume token says how much of an input is published, and notices when the input is another one."""

import io
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.cli.records import LINES, read_chunks
from veredus.cli.resumption import RememberingInput
from veredus.kernel.errors import Refused


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation


def token_after(data: bytes, offset: int) -> bytes:
    source = RememberingInput(io.BytesIO(data))
    while source.read1(100):
        pass
    return source.token_at(offset)


def rest_after(file: BinaryIO, token: bytes) -> bytes:
    source = RememberingInput(file)
    source.go_to(token)
    return b"".join(iter(lambda: source.read1(1000), b""))


long_data = st.builds(lambda seed, count: seed * count, st.binary(min_size=1, max_size=9), st.integers(1, 2000))


@given(long_data, st.integers(0, 20_000), st.sampled_from((io.BytesIO, Pipe)))
def test_reading_goes_on_behind_the_place_that_was_marked(data: bytes, offset: int, kind: type[io.BytesIO]) -> None:
    offset = min(offset, len(data))
    assert rest_after(kind(data), token_after(data, offset)) == data[offset:]


def test_an_input_that_has_grown_goes_on_where_it_ended() -> None:
    token = token_after(b"one\ntwo\n", 8)
    assert rest_after(io.BytesIO(b"one\ntwo\nthree\n"), token) == b"three\n"


@pytest.mark.parametrize("kind", [io.BytesIO, Pipe])
@pytest.mark.parametrize("other", [b"", b"one\n", b"one\ntwX\nthree\n"])
def test_another_input_is_refused_before_anything_is_published(kind: type[io.BytesIO], other: bytes) -> None:
    with pytest.raises(Refused, match=r"another input|this input has") as caught:
        rest_after(kind(other), token_after(b"one\ntwo\n", 8))
    assert caught.value.code == "other-input"


@pytest.mark.parametrize("kind", [io.BytesIO, Pipe])
@pytest.mark.parametrize("at", [0, 1, 50_000, 99_999])
def test_an_input_that_was_mended_anywhere_before_the_place_is_another_one(kind: type[io.BytesIO], at: int) -> None:
    data = bytes(100_000)
    mended = data[:at] + b"\x01" + data[at + 1 :]
    with pytest.raises(Refused, match="another input"):
        rest_after(kind(mended), token_after(data, len(data)))


def test_the_token_of_another_program_is_refused() -> None:
    with pytest.raises(Refused, match="not written by this command"):
        rest_after(io.BytesIO(b"one\n"), b'{"by":"somebody"}')


def test_without_a_token_reading_begins_at_the_beginning() -> None:
    assert rest_after(io.BytesIO(b"one\n"), b"") == b"one\n"


@given(long_data, st.integers(1, 500), st.sampled_from((io.BytesIO, Pipe)), st.booleans())
def test_what_was_looked_at_is_read_again(data: bytes, size: int, kind: type[io.BytesIO], has_token: bool) -> None:
    source = RememberingInput(kind(data))
    looked_at = source.read1(1000)
    source.begin_again()
    source.go_to(token_after(data, len(looked_at)) if has_token else b"")
    rest = b"".join(iter(lambda: source.read1(size), b""))
    assert rest == (data[len(looked_at) :] if has_token else data)


def test_an_input_that_ended_as_it_was_looked_at_has_ended() -> None:
    pieces = [b"", b"one\n"]

    class Terminal(Pipe):
        def read1(self, _size: int | None = -1) -> bytes:
            return pieces.pop()

    source = RememberingInput(Terminal())
    assert (source.read1(100), source.read1(100)) == (b"one\n", b"")
    source.begin_again()
    assert (source.read1(100), source.read1(100)) == (b"one\n", b"")


def test_marks_may_be_set_again_and_again_and_little_is_kept() -> None:
    data = b"".join(b"line %d\n" % index for index in range(20_000))
    source = RememberingInput(io.BytesIO(data))
    tokens = [(chunk.end_offset, source.token_at(chunk.end_offset)) for chunk in read_chunks(source, LINES)]
    assert len(tokens) > 0
    for offset, token in tokens:
        assert rest_after(io.BytesIO(data), token) == data[offset:]
    assert not source._kept
