"""TaskId: the id of a task, with what is known about its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # which type checkers have

    from blueque.model.converter import Converter

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class TaskId(str, Generic[R_co]):
    """The id of a task: a str that also says whether the call created the task.

    `R` is the type of the result.
    is_new: False if the task existed before, with the same key or id.
    converter: converts the result to the type that the handler returns. None: it stays JSON. A copy
        of the id in another process has none.
    """

    __slots__ = ("converter", "is_new")

    is_new: bool
    converter: Converter | None

    def __new__(
        cls, text: str, is_new: bool = True, converter: Converter | None = None
    ) -> TaskId[Any]:
        made = super().__new__(cls, text)
        made.is_new, made.converter = is_new, converter
        return made

    def __deepcopy__(self, _: object = None) -> TaskId[Any]:
        return self  # with its converter

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[type[TaskId[Any]], tuple[str, bool]]:
        return TaskId, (str(self), self.is_new)
