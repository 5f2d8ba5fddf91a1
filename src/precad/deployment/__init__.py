"""What two organisations and their clients run: tasks, keys, sealed submissions, durable servers, receipts."""

from typing import TYPE_CHECKING

from precad.lazy import public_names

if TYPE_CHECKING:
    from precad.deployment.client import Client, RefusedError
    from precad.deployment.config import load as load_settings
    from precad.deployment.https import HttpTransport
    from precad.deployment.keys import load_private as load_key
    from precad.deployment.receipts import write as write_log
    from precad.deployment.replies import reply_to
    from precad.deployment.task import Task, Training
    from precad.deployment.task import load as load_task
    from precad.deployment.transport import TransportError

__getattr__, __dir__ = public_names(
    __name__,
    {
        "Client": "precad.deployment.client",
        "HttpTransport": "precad.deployment.https",
        "RefusedError": "precad.deployment.client",
        "Task": "precad.deployment.task",
        "Training": "precad.deployment.task",
        "TransportError": "precad.deployment.transport",
        "load_key": "precad.deployment.keys:load_private",
        "load_settings": "precad.deployment.config:load",
        "load_task": "precad.deployment.task:load",
        "reply_to": "precad.deployment.replies",
        "write_log": "precad.deployment.receipts:write",
    },
)

__all__ = [
    "Client",
    "HttpTransport",
    "RefusedError",
    "Task",
    "Training",
    "TransportError",
    "load_key",
    "load_settings",
    "load_task",
    "reply_to",
    "write_log",
]
