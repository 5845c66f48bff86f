"""The process that renders chat templates: warm, restarted after a kill, safe in threads and forks, gone at the end."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from enginesmith.errors import ChatTemplateError, RequestError
from enginesmith.runtime import template_process
from enginesmith.runtime.template_process import TemplateProcess

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def process():
    process = TemplateProcess()
    yield process
    process._stop()


def _pid(process: TemplateProcess) -> int:
    assert process._process is not None
    return process._process.pid


def _gone(pid: int) -> bool:
    """Whether a process has ended, within ten seconds."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_it_stays_warm(process: TemplateProcess) -> None:
    assert process.render("{{ x }}", {"x": "é\ud800 \U0001f600"}) == "é\ud800 \U0001f600"
    pid = _pid(process)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        process.render("{% for m in messages %}{{ m.role }}{% endfor %}", {"messages": [{"role": "user"}] * 20})
        times.append(time.perf_counter() - start)
    assert _pid(process) == pid
    assert sorted(times)[20] < 0.001


def test_it_can_be_started_before_the_first_chat(process: TemplateProcess) -> None:
    process.start()
    pid = _pid(process)
    assert process.render("{{ 1 + 1 }}", {}) == "2"
    assert _pid(process) == pid


def test_it_is_started_anew_after_a_kill(process: TemplateProcess) -> None:
    process.render("", {})
    pid = _pid(process)
    os.kill(pid, signal.SIGKILL)
    assert _gone(pid)
    assert process.render("{{ 1 + 1 }}", {}) == "2"


def test_a_template_that_ends_the_process(process: TemplateProcess) -> None:
    process.render("", {})
    threading.Timer(0.2, os.kill, (_pid(process), signal.SIGSEGV)).start()
    with pytest.raises(ChatTemplateError, match=r"ended the process that rendered it \(signal SIGSEGV\)"):
        process.render(ENDLESS, {})
    assert process.render("{{ 1 + 1 }}", {}) == "2"


def test_time_and_memory_are_bounded(process: TemplateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "MAX_SECONDS", 0.2)
    with pytest.raises(ChatTemplateError, match=r"the chat template took more than 0\.2 seconds"):
        process.render(ENDLESS, {})
    monkeypatch.undo()
    with pytest.raises(ChatTemplateError, match="the chat template needs more memory than it may have"):
        process.render("{{ ('x' * n)[:1] }}", {"n": template_process.MAX_MEMORY})
    with pytest.raises(ChatTemplateError, match="made a text of 4000001 characters; the limit is 4000000"):
        process.render("{{ 'x' * 4000001 }}", {})
    with pytest.raises(RequestError, match=r"the conversation has 67\.1 MB; a chat may have 67\.1 MB"):
        process.render("", {"x": "y" * (64 << 20)})


def test_an_interrupt_leaves_no_answer_behind(process: TemplateProcess) -> None:
    process.render("", {})
    pid = _pid(process)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        process.render(ENDLESS, {})
    assert _gone(pid)
    assert process.render("{{ 1 + 1 }}", {}) == "2"


def test_signals_cut_no_answer_short(process: TemplateProcess) -> None:
    process.render("", {})
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        lengths = {len(process.render("{{ x * 3999999 }}", {"x": "é"})) for _ in range(10)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert lengths == {3_999_999}


@pytest.mark.parametrize(
    "how",
    [
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "sys.path.append(Path('/'))",
        "forbid_more(), resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))",
        "os.close(0), os.close(1)",
    ],
    ids=["timer-ignored", "signals-blocked", "odd-path", "little-memory", "closed"],
)
def test_what_it_inherits(how: str) -> None:
    code = f"""if True:
        import ctypes, os, resource, signal, sys
        from pathlib import Path
        from enginesmith.runtime import template_process as module
        module.MAX_SECONDS = 0.5
        def forbid_more():  # to programs run by root: PR_CAPBSET_DROP of CAP_SYS_RESOURCE
            ctypes.CDLL(None).prctl(24, 24)
        {how}
        assert module.template_process.render("{{{{ 1 + 1 }}}}", {{}}) == "2"
        try:
            module.template_process.render({ENDLESS!r}, {{}})
        except module.ChatTemplateError as error:
            print(error, file=sys.stderr)
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert ended.stderr.strip() == "the chat template took more than 0.5 seconds"


def test_threads_share_it_and_may_end(process: TemplateProcess) -> None:
    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda x: process.render("{{ x }}" * (x % 5), {"x": x}), range(400)))
    assert texts == [str(x) * (x % 5) for x in range(400)]
    pid = _pid(process)
    assert process.render("{{ 1 + 1 }}", {}) == "2"
    assert _pid(process) == pid


def test_a_fork_starts_its_own(process: TemplateProcess) -> None:
    process.render("", {})
    pid = _pid(process)
    child = os.fork()
    if child == 0:
        with process._lock:
            pass
        text = process.render("{{ 1 + 1 }}", {})
        os._exit(0 if text == "2" and _pid(process) != pid else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert process.render("{{ 1 + 2 }}", {}) == "3"
    assert _pid(process) == pid


@pytest.mark.parametrize("source", ["x", ENDLESS], ids=["idle", "busy"])
def test_it_dies_with_its_parent(source: str) -> None:
    code = f"""if True:
        import threading, time
        from enginesmith.runtime import template_process as module
        module.MAX_SECONDS = 1.0
        process = module.template_process
        process.render("", {{}})
        print(process._process.pid, flush=True)
        process.render({source!r}, {{}})
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.1)
        parent.kill()
    assert _gone(pid)


def test_it_loads_little_and_only_when_a_chat_asks() -> None:
    code = "import enginesmith.runtime.llm, sys; print('jinja2' in sys.modules, 'subprocess' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()[0] == "False"
