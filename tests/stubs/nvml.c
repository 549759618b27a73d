/* A stub of the driver's library: enough of NVML for the real binding to read simulated GPUs.

   gcc -shared -fPIC -pthread -o libnvidia-ml.so.1 nvml.c
   LD_LIBRARY_PATH=. NVML_STUB=answers.txt python …

   answers.txt is read at every call, so that a test can change it while a program runs; each line is a name and a number:
     count 2        GPUs                          util 97        utilisation in percent
     power_mw 350000                              energy_mj 0    0: grows with power_mw since the library was loaded
     used_mib 1024                                reasons 4      bits of the clock throttle reasons
     pid 4711       a process on every GPU, may be repeated
     error 15       every query of the GPU `error_gpu` (all when it is -1) fails with this error
     refuse_power 999                             the query of power fails with this error
     init_ms 500    how long the start of the library takes
     hang 1         a call never returns, and holds a lock that the end of the process waits for
   With -DOLD_DRIVER the functions of later drivers are missing. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_PIDS 8
#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define INSUFFICIENT_SIZE 7
#define MIB (1024ULL * 1024ULL)

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;

typedef struct {
    long long count, util, power_mw, energy_mj, used_mib, reasons, error, error_gpu, refuse_power, init_ms, hang;
    unsigned pids[MAX_PIDS];
    unsigned num_pids;
} answers_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct timespec loaded;

__attribute__((constructor)) static void begin(void) { clock_gettime(CLOCK_MONOTONIC, &loaded); }
__attribute__((destructor)) static void end(void) { pthread_mutex_lock(&lock); }

static void take(answers_t *a, const char *word, long long value) {
    if (!strcmp(word, "count")) a->count = value;
    else if (!strcmp(word, "util")) a->util = value;
    else if (!strcmp(word, "power_mw")) a->power_mw = value;
    else if (!strcmp(word, "energy_mj")) a->energy_mj = value;
    else if (!strcmp(word, "used_mib")) a->used_mib = value;
    else if (!strcmp(word, "reasons")) a->reasons = value;
    else if (!strcmp(word, "error")) a->error = value;
    else if (!strcmp(word, "error_gpu")) a->error_gpu = value;
    else if (!strcmp(word, "refuse_power")) a->refuse_power = value;
    else if (!strcmp(word, "init_ms")) a->init_ms = value;
    else if (!strcmp(word, "hang")) a->hang = value;
    else if (!strcmp(word, "pid") && a->num_pids < MAX_PIDS) a->pids[a->num_pids++] = (unsigned)value;
}

static answers_t answers(void) {
    answers_t a = {.count = 1, .util = 42, .power_mw = 350000, .used_mib = 1024, .error_gpu = -1};
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char word[64];
    long long value;
    while (file && fscanf(file, "%63s %lld", word, &value) == 2) take(&a, word, value);
    if (file) fclose(file);
    if (a.hang) {
        pthread_mutex_lock(&lock);
        for (;;) pause();
    }
    return a;
}

static int refused(const answers_t *a, void *handle) {
    long long gpu = (long long)(size_t)handle - 1;
    return a->error && (a->error_gpu < 0 || a->error_gpu == gpu) ? (int)a->error : SUCCESS;
}

/* The beginning of every question to one GPU. */
#define ASKED(handle) answers_t a = answers(); if (refused(&a, handle)) return refused(&a, handle)

static int text(char *target, unsigned size, const char *words) {
    strncpy(target, words, size);
    return SUCCESS;
}

int nvmlInit_v2(void) { usleep((useconds_t)answers().init_ms * 1000); return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code ? "an error of the stub" : "Success"; }
int nvmlSystemGetDriverVersion(char *target, unsigned size) { return text(target, size, "999.1"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)answers().count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    answers_t a = answers();
    *handle = (void *)(size_t)(index + 1);
    return index < a.count ? refused(&a, *handle) : INVALID_ARGUMENT;
}

int nvmlDeviceGetName(void *handle, char *target, unsigned size) { (void)handle; return text(target, size, "Stub, 80 GiB"); }

int nvmlDeviceGetUUID(void *handle, char *target, unsigned size) {
    snprintf(target, size, "GPU-stub-%zu", (size_t)handle - 1);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) { (void)handle; *major = 9; *minor = 0; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *gen) { (void)handle; *gen = 5; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *gen) { ASKED(handle); *gen = 4; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *width) { ASKED(handle); *width = 16; return SUCCESS; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) { ASKED(handle); *celsius = 61 + sensor; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *mw) { ASKED(handle); *mw = 700000; return SUCCESS; }
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) { ASKED(handle); *mhz = kind == 1 ? 1980 : 3201; return SUCCESS; }

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *rates) {
    ASKED(handle);
    rates->gpu = (unsigned)a.util;
    rates->memory = 7;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) {
    ASKED(handle);
    *mw = (unsigned)a.power_mw;
    return (int)a.refuse_power;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    ASKED(handle);
    memory->total = 81920 * MIB;
    memory->used = (unsigned long long)a.used_mib * MIB + 512 * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *errors) {
    ASKED(handle);
    *errors = kind == 0 ? 3 : (unsigned)counter;
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(void *handle, int way, unsigned *kib_per_s) {
    ASKED(handle);
    usleep(20000);
    *kib_per_s = way == 0 ? 100 : 200;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits) {
    ASKED(handle);
    *bits = (unsigned long long)a.reasons;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, process_t *found) {
    ASKED(handle);
    unsigned room = *count;
    *count = a.num_pids;
    if (room < a.num_pids) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < a.num_pids; i++) found[i] = (process_t){.pid = a.pids[i], .used = MIB};
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    ASKED(handle);
    memory->total = 81920 * MIB;
    memory->reserved = 512 * MIB;
    memory->used = (unsigned long long)a.used_mib * MIB;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
    struct timespec now;
    ASKED(handle);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double since_s = (double)(now.tv_sec - loaded.tv_sec) + (double)(now.tv_nsec - loaded.tv_nsec) / 1e9;
    *mj = a.energy_mj ? (unsigned long long)a.energy_mj : (unsigned long long)((double)a.power_mw * since_s);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *bits) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(handle, bits);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *found) {
    return nvmlDeviceGetComputeRunningProcesses_v2(handle, count, found);
}
#endif
