"""Chat templates: the same text as Transformers' apply_chat_template, and nothing a template should not do."""

import contextlib
import re
import time
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models

from enginesmith.errors import ChatTemplateError, RequestError
from enginesmith.runtime.chat_template import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

BLOCKS = """
    {%- set ns = namespace(found=false, count=0) %}
    {% for message in messages %}
        {% if message.role == "system" %}
            {%- set ns.found = true %}
    {{ bos_token }}[SYS]{{ message.content | trim }}[/SYS]
        {% elif message.role == "user" %}
    [INST] {{ message.content }} [/INST]
        {% else %}
            {% generation %}
            {{ message.content }}{{ eos_token }}
            {% endgeneration %}
        {% endif %}
        {% set ns.count = ns.count + 1 %}
        {% if loop.index0 > 10 %}{% break %}{% endif %}
    {% endfor %}
{{ ns.count }} {{ ns.found }} {{ unk_token }} {{ missing_variable }}|
"""

TOOLS = """{{ bos_token }}{% if tools is not none and tools %}{{ tools | tojson(indent=2) }}
{% for tool in tools %}{{ tool.function.name | upper }}{{ tool | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}{% endif %}
{%- macro show(m) %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endmacro -%}
{% for m in messages %}{{ show(m) }}{% if m.tool_calls is defined %}{{ m.tool_calls[0]['function'] | tojson }}{% endif %}{% endfor %}
{%- set x = dict(a=1, b="é<&>") %}{{ x | tojson }}{{ x.items() | list | length }}{{ "a" ~ 1 ~ none }}
{%- for i in range(3) if i != 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}{% if enable_thinking %}<think>{% endif %}"""  # noqa: E501

RECURSIVE = """{% for item in messages recursive %}{{ item.role }}({% if item.children %}{{ loop(item.children) }}{% endif %})
{%- endfor %}{% set text %}{{ messages[0].content }} twice {{ messages[0].content }}{% endset %}{{ text | replace('a', 'b') }}
{%- for m in messages | rejectattr('role', 'equalto', 'system') %}{{ loop.revindex }}{{ m.content[:3] }}{% else %}none{% endfor %}
{{- messages | map(attribute='role') | join(',') }}{{ 7 // 2 }}{{ 2 ** 3 }}{{ '%05.1f' % 2.5 }}{{ 'x' * 3 }}{{ [1] + [2] }}{{ [1, 2] * 2 }}"""  # noqa: E501

REASONING = """{% for m in messages %}{{ m.role }}:
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content if m.content is defined else 'no content' }};{% endfor %}
{%- if add_generation_prompt %}assistant:{% endif %}"""

PLAIN = [{"role": "user", "content": "Hello,  world\n"}]
LONG = [
    {"role": "system", "content": "  Be kind. "},
    {"role": "user", "content": "banana 日本 <&>\"'"},
    {"role": "assistant", "content": " yes "},
    {"role": "user", "content": "again"},
]
TOOL_LIST = [{"type": "function", "function": {"name": "get", "parameters": {"é": [1, 2.5, None, True]}}}]
CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "get", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "42"},
]
THOUGHTS = [
    PLAIN[0],
    {"role": "assistant", "content": "4", "thinking": "2+2"},
    {"role": "assistant", "reasoning": "hm"},
]
NESTED = [{"role": "a", "content": "abba", "children": [{"role": "b"}, {"role": "c", "children": [{"role": "d"}]}]}]


def template_of(source: str, special_tokens: Mapping[str, str]) -> ChatTemplate:
    return ChatTemplate({"default": source}, special_tokens)


@pytest.fixture(scope="module")
def transformers_tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=RustTokenizer(models.BPE()), **SPECIAL)


@pytest.mark.parametrize("template", [CHATML, BLOCKS, TOOLS, RECURSIVE, REASONING], ids=range(5))
@pytest.mark.parametrize(
    "messages", [PLAIN, LONG, CALLS, THOUGHTS, NESTED], ids=["plain", "long", "calls", "thoughts", "nested"]
)
@pytest.mark.parametrize(
    "options",
    [
        {"add_generation_prompt": True},
        {"add_generation_prompt": False, "tools": TOOL_LIST, "enable_thinking": True},
        {"continue_final_message": True, "add_generation_prompt": False},
    ],
    ids=["prompt", "tools", "continue"],
)
def test_same_text_as_transformers(
    transformers_tokenizer: Any, template: str, messages: list[dict[str, Any]], options: dict[str, Any]
):
    ours = template_of(template, SPECIAL)
    try:
        expected = transformers_tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, **options
        )
    except Exception:  # theirs fails in many ways, ours in one
        with pytest.raises(RequestError):
            ours.render(messages, **options)
        return
    assert ours.render(messages, **options) == expected


def test_a_template_may_refuse():
    template = template_of("{{ raise_exception('roles must alternate') }}", SPECIAL)
    with pytest.raises(RequestError, match="roles must alternate"):
        template.render(PLAIN)


def test_the_date_is_todays():
    year = template_of("{{ strftime_now('%Y') }}", SPECIAL).render(PLAIN)
    assert year == time.strftime("%Y")


def test_large_numbers_are_no_offence():
    source = "{% macro f(n) %}{{ n + 1 }}{% endmacro %}{{ f(1700000000) }} {{ 10 ** 12 }} {{ x | default(9**10) }}"
    assert template_of(source, SPECIAL).render(PLAIN) == "1700000001 1000000000000 3486784401"


@pytest.mark.parametrize(
    "messages", [[], ["hello"], [{"role": "user", "content": "x"}, 3]], ids=["empty", "text", "number"]
)
def test_messages_must_be_messages(messages: Any):
    with pytest.raises(RequestError, match="messages"):
        template_of(CHATML, SPECIAL).render(messages)


def test_a_broken_template_is_an_error():
    template = template_of("{% for x in %}", SPECIAL)
    for attempt in (template.check, lambda: template.render(PLAIN)):
        with pytest.raises(ChatTemplateError, match="does not compile"):
            attempt()


@pytest.mark.parametrize(
    "source",
    [
        "{% for x in " * 30 + "x" + " %}{% endfor %}" * 30,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for x in messages %}" * 25 + "{% endfor %}" * 25,
        "{{ 1" + "0" * 5000 + " }}",
        "{{ x | no_such_filter }}",
        "{{ 10 ** 5000 }}",
        "{% extends 5 %}{{ \0 }}",
        "{{ '\ud800' }}{% if %}",
    ],
)
def test_whatever_does_not_compile_is_one_error(source: str):
    with pytest.raises(ChatTemplateError, match="does not compile"):
        template_of(source, SPECIAL).check()


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x'.encode('no such encoding') }}",
        "{{ {}['a'].b.c }}",
        "{{ [][5].x }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages.pop() }}",
        "{% include 'x' %}",
        "{{ '{0.__class__}'.format(1) }}{{ 5 | int(base=99) }}{{ 'x' | tojson(default=1) }}",
        "{{ strftime_now(5) }}",
        "{{ raise_exception() }}",
        "{{ cycler() }}",
        "{{ loop(1) }}",
        "{{ self.block() }}",
    ],
)
def test_whatever_goes_wrong_is_one_error(source: str):
    with pytest.raises(ChatTemplateError, match=r"the chat template (refused|failed on) the conversation"):
        template_of(source, SPECIAL).render(PLAIN)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns.__init__ = 1 %}",
        "{{ dict.__globals__.os.system('true') }}",
        "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__.json }}",
        "{% include 'x' %}",
    ],
)
def test_the_sandbox_holds(source: str):
    template = template_of(source, SPECIAL)
    try:
        text = template.render(PLAIN)
    except RequestError:
        return
    assert text == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = b %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% if n %}{% set x = f(n - 1) %}{% set y = f(n - 1) %}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}"
        "{% set ns.s = t %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('x', 'xx') %}{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 9 ** 9999999 }}",
        "{{ range(10 ** 12) | list }}",
        "{{ 'x' | center(10 ** 11) }}",
        "{{ 'x'.center(10 ** 11) }}",
        "{{ '%100000000000d' % 1 }}",
        "{{ '%100000000000d' | format(1) }}",
        "{{ '{:100000000000d}'.format(1) }}",
        "{{ lipsum(n=10**7) }}",
        "{{ messages|tojson(indent=10**9) }}",
        "{{ messages|tojson(separators=('x' * 10**8, 'y' * 10**8)) }}",
        "{{ ('a'*1000000)|replace('a', 'b'*1000000) }}",
        "{{ (['a'*1000000]*4000)|join }}",
        "{{ ('a\n'*1000000)|indent(10**6) }}",
        "{{ ('a'*1000).translate({97: 'b'*10**7}) }}",
        "{{ 'a'.encode() * 10**12 }}",
        "{{ (1).to_bytes(10**12, 'big') }}",
        "{% set x = 10**60 %}{{ ((x**64)**64)**64 }}",
        *(
            "{% set n = namespace(a=[0], b=[0]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
            "{% set n.b = [n.b, n.b] %}{% endfor %}" + use
            for use in ("{{ n.a == n.b }}", "{{ [n.a, n.b] | sort }}", "{{ n.a }}", "{{ n.a | tojson }}")
        ),
        "{% set n = namespace(a=(0,)) %}{% for i in range(60) %}{% set n.a = (n.a, n.a) %}{% endfor %}{{ {n.a: 1} }}",
    ],
)
def test_a_template_cannot_run_away(source: str, monkeypatch: pytest.MonkeyPatch):
    start = time.monotonic()
    monkeypatch.setattr("enginesmith.runtime.template_process.MAX_SECONDS", 0.3)
    with pytest.raises(ChatTemplateError):
        template_of(source, SPECIAL).render(PLAIN)
    monkeypatch.undo()
    assert time.monotonic() - start < 10
    assert template_of(CHATML, SPECIAL).render(PLAIN)


def test_small_replacements_and_joins_are_made():
    template = "{{ 'a,b'|replace(',', '-') }} {{ messages|join('+', attribute='role') }} {{ ', '.join(['a', 'b']) }}"
    assert (
        template_of(template, {}).render([{"role": r, "content": ""} for r in ("user", "tool")]) == "a-b user+tool a, b"
    )


NAMED = {"default": "D", "tool_use": "T{{ tools }}", "rag": "R"}


@pytest.mark.parametrize("names", [("default",), ("tool_use",), ("default", "tool_use"), ("rag",), tuple(NAMED)])
@pytest.mark.parametrize("tools", [None, [], TOOL_LIST], ids=["none", "empty", "one"])
@pytest.mark.parametrize("asked", [None, "rag", "tool_use", "other", "{{ messages[0].role }}"])
def test_the_template_that_transformers_chooses(
    transformers_tokenizer: Any, names: tuple[str, ...], tools: Any, asked: str | None, monkeypatch: pytest.MonkeyPatch
):
    templates = {name: NAMED[name] for name in names}
    monkeypatch.setattr(transformers_tokenizer, "chat_template", templates)
    ours = ChatTemplate(templates, SPECIAL)
    try:
        expected = transformers_tokenizer.apply_chat_template(PLAIN, tokenize=False, tools=tools, chat_template=asked)
        if asked in ("other", *NAMED) and asked not in names:
            raise ValueError("it takes a name that no template has for a template")
    except ValueError:
        with pytest.raises(ChatTemplateError, match=f"no chat template '{asked or 'default'}'"):
            ours.render(PLAIN, tools=tools, chat_template=asked)
        return
    assert ours.render(PLAIN, tools=tools, chat_template=asked) == expected


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"role": "user", "content": [value]}
    return value


def _cyclic() -> Any:
    value: dict[str, Any] = {"role": "user", "content": "hi"}
    value["more"] = value
    return value


@pytest.mark.parametrize("value", [_nested(2000), _cyclic()], ids=["deep", "cyclic"])
@pytest.mark.parametrize("name", ["messages", "tools", "documents", "whatever"])
def test_data_without_end(name: str, value: Any):
    arguments = {"messages": PLAIN, name: [value]}
    with pytest.raises(RequestError, match=f"{name} contains itself, or is nested more than 100 deep"):
        template_of(CHATML, {}).render(**arguments)


@pytest.mark.parametrize(
    "content", [5, {"text": "a"}, [5], [{"text": 5}], [["text"]], [{"type": "image"}], [], True, ({"text": None},)]
)
def test_only_text_can_be_continued(content: Any):
    with pytest.raises(RequestError, match="has no text to continue"):
        template_of(CHATML, {}).render([{"role": "user", "content": content}], continue_final_message=True)


@pytest.mark.parametrize(
    ("message", "said"),
    [({"role": "user"}, r"messages\[1\], of role 'user', has no 'content'"), ({"content": "x"}, "has no 'role'")],
)
def test_a_message_without_its_parts_is_named(message: dict[str, str], said: str) -> None:
    template = template_of("{% for m in messages %}{{ m.content }}{% endfor %}", {})
    with pytest.raises(RequestError, match=said):
        template.render([{"role": "system", "content": "s"}, message])


def test_mutated_templates_render_or_are_one_error():
    random = Random(0)
    seeds = [re.findall(r"\w+|[^\w\s]+|\s+", text) for text in (CHATML, BLOCKS, TOOLS, RECURSIVE, REASONING)]
    parts = [part for seed in seeds for part in seed]
    parts += ["'x' * 10**9", "| sort", "| join", "**", "~", "self", "caller()", "\x00", "{% for i in range(99999) %}"]
    for _ in range(300):
        source = list(random.choice(seeds))
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(source))
            source[at : at + random.randrange(2)] = random.choices(parts, k=random.randrange(2))
        with contextlib.suppress(ChatTemplateError):
            template_of("".join(source), SPECIAL).render(random.choice([PLAIN, LONG, CALLS, NESTED]), tools=TOOL_LIST)
