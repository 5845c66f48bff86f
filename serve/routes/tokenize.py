"""/tokenize and /detokenize."""

import asyncio

from fastapi import APIRouter

from ...errors import ParameterError, shown
from ..conversation import checked_variables, render
from ..engine_errors import as_answers
from ..json_response import JsonResponse
from ..protocol.tokenize import DetokenizeBody, TokenizeBody
from ..service import Shared
from ..tools.request import tool_request

router = APIRouter()


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, service: Shared) -> JsonResponse:
    """Token ids of a prompt, or of a conversation as the template writes it."""
    service.check_model(body.model)
    tokenizer = service.engine.tokenizer
    with as_answers({"": "prompt" if body.messages is None else "messages"}, TokenizeBody.model_fields):
        if (body.prompt is None) == (body.messages is None):
            raise ParameterError("prompt", "give it or messages, and not both")
        text, add_special_tokens = body.prompt, body.add_special_tokens
        if body.messages is not None:
            text = await render(
                service,
                body.messages,
                tools=list(tool_request(body.tools, None, None).tools) or None,
                add_generation_prompt=body.add_generation_prompt,
                continue_final_message=body.continue_final_message,
                **checked_variables(body.chat_template_kwargs),
            )
            add_special_tokens = bool(add_special_tokens)
        tokens = await asyncio.to_thread(
            tokenizer.encode, text or "", add_special_tokens=add_special_tokens is not False
        )
    return JsonResponse(
        {
            "count": len(tokens),
            "max_model_len": service.engine.manifest.limits.max_seq_len,
            "tokens": tokens,
            "token_strs": [tokenizer.decode_token(token) for token in tokens] if body.return_token_strs else None,
        }
    )


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, service: Shared) -> JsonResponse:
    """The text of token ids."""
    service.check_model(body.model)
    size = service.engine.manifest.model.vocab_size
    with as_answers({"": "tokens"}, DetokenizeBody.model_fields):
        for index, token in enumerate(body.tokens):
            if not 0 <= token < size:
                raise ParameterError(f"tokens[{index}]", f"must be in [0, {size}), got {shown(token)}")
        text = await asyncio.to_thread(
            service.engine.tokenizer.decode, body.tokens, skip_special_tokens=body.skip_special_tokens
        )
    return JsonResponse({"prompt": text})
