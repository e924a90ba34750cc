"""Handlers that register themselves: `@blueque.handler("some.queue")`.

Importing a module registers its handlers. A listener imports the modules that its command names.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

from blueque.errors import InvalidInput, InvalidType
from blueque.model import limits, units
from blueque.model.encoding import require_queue_name
from blueque.model.ids import require_id
from blueque.model.options import require_retry
from blueque.model.task_id import TaskId
from blueque.task_process.annotations import types_of
from blueque.text.format import names_of

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Never, Unpack

    from blueque.async_client import AsyncClient
    from blueque.client import Client
    from blueque.model.converter import Types
    from blueque.model.new import Then
    from blueque.model.options import EnqueueOptions
    from blueque.model.retry import Retry
    from blueque.producer.bulk import Batched, Count, ManyOptions
    from blueque.producer.queue import Queue
    from blueque.task_process.running_task import RunningTask

    class _OfHandler(Batched, total=False):
        queue: str | None
        client: Client | None


C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")
_VARIABLE = 0x4  # inspect.CO_VARARGS


class Settings(NamedTuple):
    """What a handler sets for tasks of its queue that set nothing themselves.

    retry: the policy. False: no retries. None: the handler sets nothing. limits: see
        `limits.fields`.
    """

    retry: Retry | Literal[False] | None
    limits: Mapping[str, int | float]


class QueueHandler(Generic[P, R]):
    """A function that runs the tasks of one or several queues, and can enqueue such tasks: see `handler`.

    A call of it calls the function. `P` and `R` are the types of the parameters and of the result.
    queue, queues: the first of its queues, and all.
    """

    def __init__(
        self, queues: Sequence[str], function: Callable[..., R], settings: Settings
    ) -> None:
        functools.update_wrapper(self, function)
        self.queue, self.queues = queues[0], tuple(dict.fromkeys(queues))
        self.function, self.settings = function, settings
        self.takes_parameters = _takes_parameters(function)
        self._types: Types | None = None

    if TYPE_CHECKING:  # which tells it from other callables so: see run_task.py

        def __setattr__(self, name: str, value: Never, /) -> None: ...

    def __call__(self, task: RunningTask, *parameters: P) -> R:
        return self.function(task, *parameters)

    def __repr__(self) -> str:
        return f"<QueueHandler {name_of(self)} of {names_of(self.queues)}>"

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])  # other processes find it as they find the function

    @property
    def types(self) -> Types:
        """The converters of parameters and results. Raises InvalidType, NotInstalled."""
        if self._types is None:
            try:
                self._types = types_of(self.function)
            except NameError as error:
                raise InvalidType(
                    f"the annotations of {name_of(self)} name {error.name!r}, and its module does not have that when it "
                    "runs: define or import it there, outside of functions and of `if TYPE_CHECKING`"
                ) from error
        return self._types

    def arguments(self, task: RunningTask) -> tuple[Any, ...]:
        """Return the arguments of the function. Raises InvalidType if the parameters do not fit."""
        if not self.takes_parameters:
            return (task,)
        given, converter = task.parameters, self.types.parameters
        return task, given if converter is None else converter.from_json(given, "parameters")

    def run(self, task: RunningTask) -> R:
        """Run a task as a listener does. Raises InvalidType, as `arguments` does."""
        return self.function(*self.arguments(task))

    def enqueue(
        self,
        parameters: P,
        *,
        queue: str | None = None,
        client: Client | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskId[R]:
        """Put a new task for this handler in line and return its id, which knows the type of the result.

        parameters: of the type that annotates the second argument of the handler.
        queue: one of the queues of the handler. None: the first.
        client: None: in a task, a client for the Redis of the listener. Elsewhere, for the Redis
            that the environment or blueque.toml names, as for the command `blueque`. In
            `blueque.testing.drain`, the client of drain. `run_task` has none and raises
            InvalidInput.
        Options and errors are those of `Queue.enqueue`. Also raises InvalidType if the parameters
        do not fit the annotation.
        Source: docs/protocol.md, "create".
        """
        return self.get_queue(client, queue).enqueue(parameters, **options)

    def schedule(
        self,
        parameters: P,
        eta: float | datetime,
        *,
        queue: str | None = None,
        client: Client | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskId[R]:
        """Create a task for this handler that joins the line at `eta` and return its id.

        queue, client: as for `enqueue`. The rest is as for `Queue.schedule`.
        Source: docs/protocol.md, "create".
        """
        return self.get_queue(client, queue).schedule(parameters, eta, **options)

    @overload
    def enqueue_many(
        self, iterable: Iterable[P], *, ids: Literal[True], **options: Unpack[_OfHandler]
    ) -> list[TaskId[R]]: ...

    @overload
    def enqueue_many(
        self, iterable: Iterable[P], *, ids: Literal[False] = False, **options: Unpack[_OfHandler]
    ) -> Count: ...

    @overload
    def enqueue_many(
        self, iterable: Iterable[P], *, ids: bool, **options: Unpack[_OfHandler]
    ) -> Count | list[TaskId[R]]: ...

    def enqueue_many(
        self,
        iterable: Iterable[P],
        *,
        ids: bool = False,
        batch: int = 1000,
        queue: str | None = None,
        client: Client | None = None,
        **options: Unpack[ManyOptions],
    ) -> Count | list[TaskId[R]]:
        """Put a task in line for each of the parameters and return how many, or their ids.

        queue, client: as for `enqueue`. The rest is as for `Queue.enqueue_many`.
        Source: docs/protocol.md, "create".
        """
        return self.get_queue(client, queue).enqueue_many(iterable, ids=ids, batch=batch, **options)

    async def enqueue_async(
        self,
        parameters: P,
        *,
        client: AsyncClient,
        queue: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskId[R]:
        """Do as `enqueue` without blocking the event loop."""
        return await _checked(client, is_async=True).call(
            lambda own: self.get_queue(own, queue).enqueue(parameters, **options)
        )

    async def schedule_async(
        self,
        parameters: P,
        eta: float | datetime,
        *,
        client: AsyncClient,
        queue: str | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskId[R]:
        """Do as `schedule` without blocking the event loop."""
        return await _checked(client, is_async=True).call(
            lambda own: self.get_queue(own, queue).schedule(parameters, eta, **options)
        )

    def task_id(self, text: str) -> TaskId[R]:
        """Return a text as the id of a task of this handler. Its result then has the type that the
        handler returns.

        text: the id, for example from a URL or a database. Raises InvalidInput, InvalidType if it is
            not a valid one.
        """
        return TaskId(require_id(text), False, self.types.result)

    def get_queue(self, client: Client | None = None, queue: str | None = None) -> Queue:
        """Return a queue of this handler. Arguments are those of `enqueue`.

        Raises InvalidInput.
        """
        if queue is not None and queue not in self.queues:
            raise InvalidInput(
                f"{name_of(self)} is the handler of {names_of(self.queues)}, not of {queue!r}"
            )
        own = _default_client() if client is None else _checked(client, is_async=False)
        found = own.get_queue(queue or self.queue)
        return found.of_types(self.types) if any(self.types) else found


if TYPE_CHECKING:

    class CoroutineHandler(QueueHandler[P, R]):
        """A handler whose function is a coroutine function."""

        def __call__(self, task: RunningTask, *parameters: P) -> Coroutine[Any, Any, R]: ...  # type: ignore[override]


class Decorator(Protocol):
    """What `handler` returns. The function takes the task, or the task and its parameters."""

    @overload
    def __call__(
        self, function: Callable[[RunningTask, P], Coroutine[Any, Any, R | Then[R]]], /
    ) -> CoroutineHandler[P, R]: ...

    @overload
    def __call__(self, function: Callable[[RunningTask, P], Then[R]], /) -> QueueHandler[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[[RunningTask, P], R | Then[R]], /
    ) -> QueueHandler[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[[RunningTask], Coroutine[Any, Any, R | Then[R]]], /
    ) -> CoroutineHandler[Any, R]: ...

    @overload
    def __call__(self, function: Callable[[RunningTask], Then[R]], /) -> QueueHandler[Any, R]: ...

    @overload
    def __call__(
        self, function: Callable[[RunningTask], R | Then[R]], /
    ) -> QueueHandler[Any, R]: ...


def handler(
    queue: str,
    *more: str,
    retry: Retry | int | None = None,
    time_limit: float | str | None = None,
    stall_limit: float | str | None = None,
    memory_limit: int | str | None = None,
    grace: float | str | None = None,
    lead: float | str | None = None,
) -> Decorator:
    """Make a function the handler of one or several queues.

    Listeners that import its module run its tasks. Producers enqueue with it. The function takes
    the task, or the task and its parameters. A second positional argument gets the parameters even
    if it has a default. So make your own settings keyword-only, as in `(task, *, size=3)`.
    queue: the queue to which it enqueues, unless the call names one of `more`.
    retry, time_limit, stall_limit, memory_limit, grace, lead: as for `Queue.enqueue`, for tasks
        that set none themselves. The table of the queue in blueque.toml takes precedence. A retry
        policy means that a task may run again after it has started.
    Raises InvalidInput, InvalidType; NotInstalled if an annotation needs msgspec.
    """
    for name in (queue, *more):
        if not isinstance(name, str):
            raise InvalidType('name the queue of the handler: @blueque.handler("some.queue")')
        require_queue_name(name)
    given = limits.fields(
        time_limit=time_limit,
        stall_limit=stall_limit,
        memory_limit=memory_limit,
        grace=grace,
        lead=lead,
    )
    settings = Settings(require_retry(retry), given)

    def register(function: Callable[..., Any]) -> Any:
        if isinstance(function, QueueHandler):
            names = ", ".join(map(repr, (*function.queues, queue, *more)))
            raise InvalidInput(
                f"{name_of(function)} has a decorator already; for several queues, name all of them in one: "
                f"@blueque.handler({names})"
            )
        if not callable(function) or isinstance(function, type):
            raise InvalidType(f"the handler of queue {queue!r} is a function, not {function!r}")
        made: QueueHandler[Any, Any] = QueueHandler((queue, *more), function, settings)
        with suppress(NameError):  # of a class that its module defines below
            made._types = types_of(function)
        registered.append(made)
        return made

    return register


registered: list[QueueHandler[Any, Any]] = []  # in this process, in the order of their definition


def name_of(handler: QueueHandler[Any, Any]) -> str:
    """Return the name of the function for people: its module, and its name there."""
    module = getattr(handler, "__module__", None) or "?"
    return f"{module}:{getattr(handler, '__qualname__', repr(handler.function))}"


def _takes_parameters(function: Callable[..., Any]) -> bool:
    """Return whether the function has an argument for the parameters after the task."""
    is_plain = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")
    if is_plain and not function.__code__.co_flags & _VARIABLE:
        return function.__code__.co_argcount > 1
    import inspect  # here: it is large, and most handlers are plain functions

    try:
        places = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # a builtin without a signature
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(place.kind in kinds for place in places) > 1


def _checked(client: C, is_async: bool) -> C:
    """Raise InvalidType for a Client in place of an AsyncClient, which alone has `call`, and for an
    AsyncClient in place of a Client.
    """
    if hasattr(client, "call") is not is_async:
        raise InvalidType(
            f"client is of the type {type(client).__name__}: enqueue, enqueue_many and schedule take a Client, "
            "enqueue_async and schedule_async take an AsyncClient"
        )
    return client


simulated: RunningTask | None = None  # the task of a test: its client is the default one
default_clients: dict[str, Client] = {}  # of this process, by the address they were made for


def _default_client() -> Client:
    if simulated is not None:
        return simulated.client
    address = units.redis_url()[0]
    if address not in default_clients:
        from blueque.client import Client  # here: a handler need not enqueue
        from blueque.settings.file import load

        default_clients[address] = Client(config=load())
    return default_clients[address]
