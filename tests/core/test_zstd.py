import pytest

from hawk.core import zstd

TEXTS = [b"first " * 1000, b"", b"second", bytes(range(256)) * 3000]


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_frames_are_unpacked_however_they_arrive(size: int) -> None:
    packed = b"".join(map(zstd.pack, TEXTS))
    unpacker = zstd.Unpacker()
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert b"".join(map(unpacker.feed, pieces)) == b"".join(TEXTS)


def test_a_frame_is_there_as_soon_as_it_has_arrived() -> None:
    unpacker = zstd.Unpacker()
    assert [unpacker.feed(zstd.pack(text)) for text in TEXTS] == TEXTS


def test_whole_frames_are_unpacked_at_once() -> None:
    assert zstd.unpack(zstd.pack(b"a") + zstd.pack(b"b")) == b"ab"
    assert zstd.unpack(b"") == b""


def test_damage_is_an_error() -> None:
    with pytest.raises(zstd.ZstdError):
        zstd.unpack(b"no frame at all")


@pytest.mark.parametrize("size", [1, 4096, 1 << 20])
def test_what_is_packed_bit_by_bit_is_one_frame(size: int) -> None:
    text = b"".join(TEXTS)[: 100 * size]
    packer = zstd.Packer()
    packed = b"".join(packer.feed(text[at : at + size]) for at in range(0, len(text), size)) + packer.finish()
    assert zstd.unpack(packed) == text
    assert packed[4:].find(packed[:4]) == -1
