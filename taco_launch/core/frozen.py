"""Frozen dataclasses that are made when they are first used.

Writing a dataclass's methods takes longer than all else that an import does, and of the classes that a process imports it
uses few. So `dataclass` only notes the class; the first instance, or the first look at its fields, makes it what
`dataclasses.dataclass(frozen=True)` gives.
"""

import dataclasses
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from typing import Any, Callable, Dict, Optional, Type

    _lock = threading.RLock()  # completing a class completes those that it inherits from

    def dataclass(*, frozen: bool) -> Callable[[type], type]:
        """Return the decorator; there is none but the frozen kind."""
        assert frozen
        return _put_off

    class _Unmade:
        """What stands for a class's fields until somebody looks at them."""

        def __init__(self, kind: type) -> None:
            self._kind = kind

        def __get__(self, _instance: object, _owner: Optional[type]) -> Dict[str, Any]:
            _complete(self._kind)
            return self._kind.__dataclass_fields__

    def _put_off(kind: type) -> type:
        kind.__dataclass_fields__ = _Unmade(kind)
        kind.__new__ = staticmethod(_first)
        return kind

    def _first(kind: Type[Any], /, *_arguments: Any, **_named: Any) -> Any:
        """Make an instance of a class that may not be complete; another thread waits until it is."""
        with _lock:
            for each in kind.__mro__:
                _complete(each)
        return object.__new__(kind)

    def _later(kind: Type[Any], /, *_arguments: Any, **_named: Any) -> Any:
        return object.__new__(kind)

    def _complete(kind: type) -> None:
        with _lock:
            if isinstance(vars(kind).get("__dataclass_fields__"), _Unmade):
                dataclasses.dataclass(frozen=True)(kind)
                kind.__new__ = staticmethod(
                    _later
                )  # deleted, it would stay in the way of arguments (CPython issue 49572)


__all__ = ["dataclass"]
