"""A message: a frozen class of typed fields, to JSON and back, checked field by field. A field may be a record of the model.

Every rank imports this, so it is no dataclass: what makes those takes longer than all else that a rank imports.
"""

from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, Mapping, Tuple, Type, TypeVar

from taco_launch.core.model.codec import is_nested, read_value, to_json
from taco_launch.core.protocol import framing

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_how: bool) -> Callable[[type], type]:
        """Return what leaves a class as it is: mypy alone reads this."""
        return lambda kind: kind


_Kind = TypeVar("_Kind", bound="Message")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Message:
    """One message; `op` is its name on the wire, "" where it only stands within another."""

    op = ""
    _fields: Tuple[Tuple[str, Any], ...] = ()
    # Every kind of this family by its name on the wire; a subclass with a table of its own starts another family.
    by_op: ClassVar["Dict[str, Type[Message]]"] = {}

    def __init_subclass__(cls) -> None:
        """Note the fields: every annotated name."""
        super().__init_subclass__()
        annotated = getattr(cls, "__annotations__", {})  # of a class without any, before Python 3.10, our own
        cls._fields = tuple(
            (name, kind) for name, kind in annotated.items() if not name.startswith("_") and name != "by_op"
        )
        if cls.op:
            cls.by_op[cls.op] = cls

    def __init__(self, **values: Any) -> None:
        """Take the values by name; a field with a default may be left out.

        Raises:
            TypeError: there is no field of a name.
        """
        for name, _kind in self._fields:
            object.__setattr__(self, name, values.pop(name) if name in values else getattr(type(self), name))
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    def __setattr__(self, name: str, _value: object) -> None:
        """Refuse: a message is what was said."""
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        """Compare all fields."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return one hash for each kind: fields may be lists."""
        return hash(self.op)

    def __repr__(self) -> str:
        """Return it as it would be made."""
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"

    def replace(self: _Kind, **values: Any) -> _Kind:  # noqa: PYI019 - Self is of Python 3.11
        """Return a copy with other values of some fields."""
        return type(self)(**{**vars(self), **values})

    def to_wire(self) -> Dict[str, Any]:
        """Return what JSON can hold of it: all but bytes, which follow the line."""
        found: Dict[str, Any] = {"op": self.op} if self.op else {}
        for name, value in vars(self).items():
            if not isinstance(value, bytes):  # plain values go as they are: pieces of logs have many
                first = value[0] if isinstance(value, (list, tuple)) and value else value
                found[name] = to_json(value) if is_nested(type(first)) else value
        return found

    def encode(self) -> bytes:
        """Return its line, and its data behind that."""
        data: bytes = vars(self).get("data", b"")
        line = self.to_wire()
        return framing.dump({**line, "bytes": len(data)} if data else line) + data

    def check(self) -> None:
        """Check what the types of the fields do not say; for subclasses.

        Raises:
            ValueError: a value is one that this kind of message cannot have.
        """

    @classmethod
    def from_wire(cls: Type[_Kind], line: Mapping[str, Any]) -> _Kind:
        """Read the fields of this kind of message; what else stands there is a newer version's, and left alone.

        Raises:
            ValueError: a field is missing, or is of another type, or has a value that it cannot have.
        """
        values = {}
        try:
            for name, kind in cls._fields:
                if name in line:
                    values[name] = read_value(kind, line[name], name)
                elif not hasattr(cls, name):
                    raise ValueError(f"{cls.op or cls.__name__}: {name} is missing")
            found = cls(**values)
            found.check()
        except (TypeError, LookupError, AttributeError, OverflowError) as error:  # of a record
            raise ValueError(f"{cls.op or cls.__name__}: {error!r:.200}") from None
        return found


# The messages between the processes of a job.
KINDS = Message.by_op
