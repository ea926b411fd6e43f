"""What a `with` block closes at its end."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Has a `close`, which a `with` block calls at its end, however that comes."""

    @abstractmethod
    def close(self) -> None:
        """Free what it has; harmless the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
