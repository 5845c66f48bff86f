"""Forms are found by what chat templates of models say of calls."""

import pytest

from enginesmith.serve.tools.registry import find_tool_parser

# How the templates of well-known models tell of calls; the rest of them says nothing of it.
TEMPLATES = {
    "Qwen2.5": (
        'XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}',
        "hermes",
    ),
    "Hermes-3": ('{{- "<tool_call>\n" }}\n{{- \'{"name": <function-name>, "arguments": <args-dict>}', "hermes"),
    "Qwen3-Coder": ("<tool_call>\n<function=example_function_name>\n<parameter=example>", None),
    "GLM-4.5": ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", None),
    "Llama-3.1": ('{{- "<|python_tag|>" + tool_call.name + ".call(" }}', "llama3"),
    "Llama-3.2": ('Respond in the format {"name": function name, "parameters": dictionary of argument name', "llama3"),
    "Functionary-3.1": ("<function=example_function_name>{{ x }}<|python_tag|>", None),
    "Llama-3.2 pythonic": ("in the format of [func_name1(params_name1=params_value1)]<|python_tag|>", "pythonic"),
    "LFM2": ("{{- '<|tool_call_start|>[' }}", "pythonic"),
    "Mistral-Nemo": ('{{- "[TOOL_CALLS][" }}', "mistral"),
    "Gemma-2": ("<start_of_turn>model\n", None),
}


@pytest.mark.parametrize(("template", "form"), TEMPLATES.values(), ids=TEMPLATES)
def test_forms_by_template(template: str, form: str | None) -> None:
    assert find_tool_parser(template) == form
