"""Builds plans in a process of its own: a JSON line in for each, a JSON line out.

TensorRT keeps memory that a build should not hold, and an error in it may end the process. The first line says which
package, for which compute capability; plans of one process share what TensorRT has timed.
"""

import json
import os
import resource
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    first = json.loads(sys.stdin.readline())
    sys.path[:] = first["path"]
    answers = os.fdopen(os.dup(1), "w")  # what TensorRT prints goes to standard error
    os.dup2(2, 1)
    trt: Any = import_module(first["package"])
    log = _log_of(trt)
    builder = trt.Builder(log)
    cache = None  # of how fast kernels are, which TensorRT-RTX does not measure
    for line in sys.stdin:
        job = json.loads(line)
        log.errors.clear()
        config = builder.create_builder_config()
        if first["package"] == "tensorrt":
            cache = config.create_timing_cache(b"") if cache is None else cache
            config.set_timing_cache(cache, False)
        try:
            _build(trt, builder, config, first, job, log)
            answer: dict[str, Any] = {"peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
        except Exception as error:
            answer = {"error": "; ".join([*log.errors, f"{type(error).__name__}: {error}"])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _build(trt: Any, builder: Any, config: Any, first: dict[str, Any], job: dict[str, Any], log: Any) -> None:
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(job["model"]):
        raise ValueError("; ".join(parser.get_error(number).desc() for number in range(parser.num_errors)))
    config.clear_flag(trt.BuilderFlag.TF32)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, first["workspace"])
    if first["package"] == "tensorrt_rtx":  # which does not build for the GPU that is here, if one is
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{first['sm']}"), 0)
    profile = builder.create_optimization_profile()
    for number in range(network.num_inputs):
        tensor = network.get_input(number)
        profile.set_shape(tensor.name, *([rows, *list(tensor.shape)[1:]] for rows in job["rows"]))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ValueError("no engine was built")
    Path(job["plan"]).write_bytes(plan)


def _log_of(trt: Any) -> Any:
    """A logger that keeps errors."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

    return Log()


if __name__ == "__main__":
    main()
