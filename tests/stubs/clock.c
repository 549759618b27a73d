/* A wall clock that can be set: CLOCK_REALTIME plus the seconds written in the file of $CLOCK_OFFSET_FILE; all other clocks are real. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OFFSET_BYTES 32

static const char *offset_text;

static void __attribute__((constructor)) map_offset(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int handle = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (handle < 0) return;
  void *mapped = mmap(NULL, OFFSET_BYTES, PROT_READ, MAP_SHARED, handle, 0);
  close(handle);
  if (mapped != MAP_FAILED) offset_text = mapped;
}

static long offset_s(void) { return offset_text ? strtol(offset_text, NULL, 10) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += offset_s();
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec fine;
  (void)zone;
  int result = clock_gettime(CLOCK_REALTIME, &fine);
  now->tv_sec = fine.tv_sec;
  now->tv_usec = fine.tv_nsec / 1000;
  return result;
}

time_t time(time_t *where) {
  struct timespec fine;
  clock_gettime(CLOCK_REALTIME, &fine);
  if (where) *where = fine.tv_sec;
  return fine.tv_sec;
}
