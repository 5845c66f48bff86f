"""The process that renders chat templates, as its parent sees it."""

from pathlib import Path
from typing import Any

from ..errors import ChatTemplateError, RequestError
from ..units import shown_size
from .sandbox_process import Ended, Refused, SandboxProcess, packed

MAX_SECONDS = 5.0
MAX_MEMORY = 512 << 20
_MAX_REQUEST = 64 << 20


class TemplateProcess(SandboxProcess):
    """One child for all templates."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("template_sandbox.py"), MAX_MEMORY)

    def render(self, source: str, variables: dict[str, Any] | None) -> str:
        """What the template makes of `variables`, plain data; without them it is only compiled.

        Raises ChatTemplateError for whatever goes wrong in a template, RequestError for variables too large.
        """
        request = packed((source, variables), MAX_SECONDS)
        if len(request) > _MAX_REQUEST:
            raise RequestError(
                f"the conversation has {shown_size(len(request))}; a chat may have {shown_size(_MAX_REQUEST)}"
            )
        try:
            return self.ask(request)
        except Refused as refused:
            raise ChatTemplateError(f"the chat template {refused}") from None
        except Ended as ended:
            if ended.out_of_time:
                raise ChatTemplateError(f"the chat template took more than {MAX_SECONDS:g} seconds") from None
            raise ChatTemplateError(f"the chat template ended the process that rendered it ({ended})") from None


template_process = TemplateProcess()
