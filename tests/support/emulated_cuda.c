// A stand-in for libcuda.so.1, as much of it as the cuda target's executor asks for: device memory is host memory,
// a launch calls back with the module's image and its parameters, and a graph replays launches with the parameters of
// their capture. Streams do nothing before somebody waits for them: what is read too early, or overwritten too early,
// shows. They share one queue, which is an order that a device might take.
//
// Every call that a driver may fail counts; the n-th can be made to fail. Some failures break the context, as a fault
// of a kernel does: from then on every call fails, until the context is released.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef uint64_t Address;
enum { kInvalid = 1, kOutOfMemory = 2, kCaptureInvalid = 901, kMaxParameters = 64, kMaxTaken = 4096 };

typedef double (*OnLaunch)(const char* image, const char* entry, const unsigned* grid, unsigned threads,
                         const uint64_t* values);
typedef int (*CountParameters)(const char* image);
typedef struct { char *image, *entry; } Function;
typedef struct { Function* function; unsigned grid[3], threads; uint64_t values[kMaxParameters]; } Launch;
typedef struct { Launch* launches; int count, room; } Graph;
typedef struct { void* at; size_t bytes; int is_host; } Taken;
typedef struct { long after; double at; } Event;  // after how many operations it is, and when it was reached
typedef struct { void *to; const void* from; size_t bytes; Launch launch; Graph* graph; Event* event; } Operation;

static OnLaunch on_launch;
static CountParameters count_parameters;
static Taken taken[kMaxTaken];
static int num_taken, contexts, streams, modules, graphs, events;
static Operation* queue;  // operations [done, queued), from queue[0] on
static long queue_room, queued, done;
static double clock_ms;  // how long all launches took, as on_launch says
static Graph* capturing;
static int capture_is_invalid;
static long calls, fail_at, launches_run, graphs_run;
static Result failure, broken;
static int compute_capability = 90, num_devices = 1, driver_version = 13040;
static size_t total_memory = 8ull << 30;
static int fresh = 0xFF;  // what new memory holds: NaN, and no count, so that what is read before it is written shows

// ---- what tests ask and set
void emulated_hooks(OnLaunch launch, CountParameters count) { on_launch = launch, count_parameters = count; }
void emulated_device(int sm, int devices, int driver, size_t memory) {
  compute_capability = sm, num_devices = devices, driver_version = driver, total_memory = memory;
}
void emulated_fresh(int byte) { fresh = byte; }
void emulated_fail(long at, Result error) { calls = 0, fail_at = at, failure = error; }
long emulated_calls(void) { return calls; }
long emulated_launches(void) { return launches_run; }
long emulated_graphs(void) { return graphs_run; }
int emulated_held(void) { return num_taken + contexts + streams + modules + graphs + events; }

static int breaks_context(Result error) { return error == 700 || error == 714 || error == 719; }

// Counts a call; the error that it fails with, if it does.
static Result tick(void) {
  if (broken) return broken;
  if (++calls != fail_at) return 0;
  if (contexts && breaks_context(failure)) broken = failure;
  if (capturing) capture_is_invalid = 1;
  return failure;
}
#define TICK                              \
  do {                                    \
    const Result ticked = tick();         \
    if (ticked) return ticked;            \
  } while (0)

static size_t in_use(void) {
  size_t bytes = 0;
  for (int i = 0; i < num_taken; ++i) bytes += taken[i].is_host ? 0 : taken[i].bytes;
  return bytes;
}

static Result take(void** at, size_t bytes, int is_host) {
  TICK;
  if (!is_host && in_use() + bytes > total_memory) return kOutOfMemory;
  if (num_taken == kMaxTaken || posix_memalign(at, 256, bytes ? bytes : 1)) return kOutOfMemory;
  memset(*at, fresh, bytes);
  taken[num_taken++] = (Taken){*at, bytes, is_host};
  return 0;
}

static Result give(void* at) {
  if (broken) return broken;
  for (int i = 0; i < num_taken; ++i) {
    if (taken[i].at != at) continue;
    free(at);
    taken[i] = taken[--num_taken];
    return 0;
  }
  return kInvalid;
}

// ---- the queue
static void run(const Launch* l) {
  ++launches_run;
  clock_ms += on_launch(l->function->image, l->function->entry, l->grid, l->threads, l->values);
}
static Result enqueue(Operation operation) {
  if (queued - done == queue_room) {
    queue_room = 2 * queue_room + 64;
    queue = realloc(queue, queue_room * sizeof *queue);
  }
  queue[queued++ - done] = operation;
  return 0;
}
// Does what was queued, up to the `until`-th operation of all; nothing, once the context is broken.
static Result drain(long until) {
  long number = 0;
  for (; done + number < until; ++number) {
    const Operation* operation = &queue[number];
    if (broken) continue;
    if (operation->graph)
      for (int i = 0; i < operation->graph->count; ++i) run(&operation->graph->launches[i]);
    else if (operation->launch.function)
      run(&operation->launch);
    else if (operation->event)
      operation->event->at = clock_ms;
    else
      memcpy(operation->to, operation->from, operation->bytes);
  }
  memmove(queue, queue + number, (queued - done - number) * sizeof *queue);
  done += number;
  return 0;
}

// ---- the driver and its devices
Result cuInit(unsigned flags) { return num_devices < 0 ? 100 : 0; }
Result cuDriverGetVersion(int* version) { *version = driver_version; return 0; }
Result cuDeviceGetCount(int* count) { *count = num_devices; return 0; }
Result cuDeviceGet(int* device, int number) { *device = number; return number < num_devices ? 0 : 101; }
Result cuDeviceGetName(char* name, int size, int device) { snprintf(name, size, "Emulated GPU"); return 0; }
Result cuDeviceTotalMem_v2(size_t* bytes, int device) { *bytes = total_memory; return 0; }
Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 75: *value = compute_capability / 10; return 0;
    case 76: *value = compute_capability % 10; return 0;
    case 16: *value = 4; return 0;        // multiprocessors
    case 38: *value = 4096; return 0;     // bytes of cache
    case 97: *value = 232448; return 0;   // shared memory that a block can have
    default: return kInvalid;
  }
}
Result cuDevicePrimaryCtxRetain(void** context, int device) { TICK; ++contexts; *context = (void*)1; return 0; }
Result cuDevicePrimaryCtxRelease_v2(int device) {
  if (contexts == 0) return 201;
  if (--contexts) return 0;
  for (int i = 0; i < num_taken; ++i) free(taken[i].at);
  num_taken = streams = modules = graphs = events = 0;
  done = queued;
  broken = 0;
  return 0;
}
Result cuCtxSetCurrent(void* context) { return broken; }
Result cuCtxGetCurrent(void** context) { *context = contexts ? (void*)1 : NULL; return 0; }
Result cuMemGetInfo_v2(size_t* available, size_t* total) {
  TICK;
  *total = total_memory, *available = total_memory - in_use();
  return 0;
}

// ---- memory
Result cuMemAlloc_v2(Address* at, size_t bytes) { return take((void**)at, bytes, 0); }
Result cuMemFree_v2(Address at) { return give((void*)at); }
Result cuMemAllocHost_v2(void** at, size_t bytes) { return take(at, bytes, 1); }
Result cuMemFreeHost(void* at) { return give(at); }
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  TICK;
  return enqueue((Operation){.to = (void*)to, .from = from, .bytes = bytes});
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  TICK;
  return enqueue((Operation){.to = to, .from = (void*)from, .bytes = bytes});
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void* stream) { TICK; return 0; }

// ---- streams and modules
Result cuStreamCreate(void** stream, unsigned flags) { TICK; ++streams; *stream = malloc(1); return 0; }
Result cuStreamDestroy_v2(void* stream) { if (broken) return broken; --streams; free(stream); return 0; }
Result cuStreamSynchronize(void* stream) { TICK; return drain(queued); }
Result cuEventCreate(void** event, unsigned flags) { TICK; ++events; *event = calloc(1, sizeof(Event)); return 0; }
Result cuEventDestroy_v2(void* event) { if (broken) return broken; --events; free(event); return 0; }
Result cuEventRecord(void* event, void* stream) {
  TICK;
  enqueue((Operation){.event = event});
  ((Event*)event)->after = queued;
  return 0;
}
Result cuEventElapsedTime(float* ms, void* from, void* to) {
  TICK;
  *ms = ((Event*)to)->at - ((Event*)from)->at;
  return 0;
}
Result cuEventSynchronize(void* event) { TICK; return drain(((Event*)event)->after); }
Result cuModuleLoadData(void** module, const void* image) { TICK; ++modules; *module = strdup(image); return 0; }
Result cuModuleUnload(void* module) { if (broken) return broken; --modules; free(module); return 0; }
Result cuModuleGetFunction(void** function, void* module, const char* name) {
  TICK;
  Function* made = malloc(sizeof *made);
  made->image = module, made->entry = strdup(name);
  *function = made;
  return 0;
}
Result cuFuncSetAttribute(void* function, int attribute, int value) { TICK; return 0; }

// ---- launches and graphs
Result cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void* stream, void** parameters, void** extra) {
  TICK;
  Launch launch = {.function = function, .grid = {gx, gy, gz}, .threads = bx};
  const int count = count_parameters(launch.function->image);
  if (count < 0 || count > kMaxParameters || !gx || !gy || !gz) return kInvalid;
  for (int i = 0; i < count; ++i) launch.values[i] = *(const uint64_t*)parameters[i];
  if (!capturing) return enqueue((Operation){.launch = launch});
  if (capturing->count == capturing->room) {
    capturing->room = 2 * capturing->room + 8;
    capturing->launches = realloc(capturing->launches, capturing->room * sizeof launch);
  }
  capturing->launches[capturing->count++] = launch;
  return 0;
}
Result cuStreamBeginCapture_v2(void* stream, int mode) {
  TICK;
  capturing = calloc(1, sizeof *capturing);
  capture_is_invalid = 0;
  return 0;
}
static void discard(Graph* graph) { free(graph->launches), free(graph); }
Result cuStreamEndCapture(void* stream, void** graph) {
  Result result = tick();
  if (!result && capture_is_invalid) result = kCaptureInvalid;
  Graph* done = capturing;
  capturing = NULL;
  *graph = NULL;
  if (result) return discard(done), result;
  ++graphs;
  *graph = done;
  return 0;
}
Result cuGraphInstantiateWithFlags(void** ready, void* graph, uint64_t flags) {
  TICK;
  const Graph* from = graph;
  Graph* copy = malloc(sizeof *copy);
  *copy = *from;
  copy->launches = malloc(from->count * sizeof *from->launches);
  memcpy(copy->launches, from->launches, from->count * sizeof *from->launches);
  ++graphs;
  *ready = copy;
  return 0;
}
Result cuGraphLaunch(void* ready, void* stream) {
  TICK;
  ++graphs_run;
  return enqueue((Operation){.graph = ready});
}
Result cuGraphDestroy(void* graph) { if (broken) return broken; --graphs; discard(graph); return 0; }
Result cuGraphExecDestroy(void* graph) { return cuGraphDestroy(graph); }

// ---- errors, and how cuda.bindings finds all of this
Result cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return 0;
}
Result cuGetErrorString(int error, const char** text) { *text = "an emulated error"; return 0; }
Result cuGetProcAddress_v2(const char* symbol, void** found, int version, uint64_t flags, int* status) {
  static void* self;
  static const char* const suffixes[] = {"_v2", "_v3", ""};
  char name[128];
  Dl_info info;
  if (!self && dladdr((void*)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  *found = NULL;
  for (int i = 0; i < 3 && !*found; ++i) {
    snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
    *found = dlsym(self, name);
  }
  if (status) *status = *found ? 0 : 1;
  return 0;
}
Result cuGetProcAddress(const char* symbol, void** found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, found, version, flags, NULL);
}
