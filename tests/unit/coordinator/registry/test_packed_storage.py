"""An object is there at every moment, packed or not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pliska.coordinator.registry import packed
from pliska.coordinator.registry.packed_storage import PackedStorage
from pliska.coordinator.storage.storage import LocalStorage, Storage

SIZE = 4000


class Interrupted:
    """A storage at whose n-th change the power goes."""

    def __init__(self, inner: LocalStorage, changes: int) -> None:
        self._inner = inner
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _change(self) -> None:
        self._changes -= 1
        if self._changes < 0:
            raise KeyboardInterrupt

    def write(self, name: str, chunks: Any) -> None:
        self._change()
        self._inner.write(name, chunks)

    def delete(self, name: str) -> bool:
        self._change()
        return self._inner.delete(name)


def remove(storage: Storage, name: str) -> bool:
    return storage.delete(name)


@pytest.fixture
def crashed(storage: LocalStorage) -> Callable[[bool, int], Iterator[bytes]]:
    content = b"\5" * SIZE

    def play(is_packed: bool, changes: int) -> Iterator[bytes]:
        sound = PackedStorage(storage)
        sound.write("a", (content,))
        if is_packed:
            sound.put_packed("a", packed.pack(content, 4), remove)
        weak = PackedStorage(Interrupted(storage, changes))

        def change(store: PackedStorage) -> None:
            if is_packed:
                store.put_unpacked("a", content, remove)
            else:
                store.put_packed("a", packed.pack(content, 4), remove)

        with pytest.raises(KeyboardInterrupt):
            change(weak)
        yield sound.read("a", SIZE)
        assert sound.names("") == ["a"]
        assert sound.size("a") == SIZE
        assert sound.delete("a")
        assert storage.names("") == []

    return play


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("changes", [0, 1])
def test_a_crash_while_packing_or_unpacking_loses_nothing(
    crashed: Callable[[bool, int], Iterator[bytes]], is_packed: bool, changes: int
) -> None:
    assert list(crashed(is_packed, changes)) == [b"\5" * SIZE]


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_object_is_moved_as_it_is(storage: LocalStorage, is_packed: bool) -> None:
    content = b"\5" * SIZE
    store = PackedStorage(storage)
    store.write("a", (content,))
    if is_packed:
        store.put_packed("a", packed.pack(content, 4), remove)
    assert store.move("a", "b/c")
    assert store.size("a") is None
    assert store.is_packed("b/c") is is_packed
    assert store.read("b/c", SIZE) == content
    assert not store.move("a", "d")


def test_a_write_leaves_packed_bytes_to_who_may_remove_them(storage: LocalStorage) -> None:
    content = b"\5" * SIZE
    store = PackedStorage(storage)
    storage.write("a.packed", (b"damaged",))
    store.write("a", (content,))
    assert store.read("a", SIZE) == content
    assert (store.has_packed("a"), store.is_packed("a")) == (True, False)
    store.put_packed("a", packed.pack(content, 4), remove)
    assert store.is_packed("a")
    assert store.read("a", SIZE) == content
