/* A failing disk: preloaded, it makes calls on files of one name fail with EIO.
 *
 * EIO_PATH   a shell pattern of the file's name, or of its whole path if it contains a slash
 * EIO_CALLS  which calls: a list of open,write,fsync,rename (default: all)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int fails(const char *call, const char *path) {
    const char *pattern = getenv("EIO_PATH"), *calls = getenv("EIO_CALLS");
    if (!pattern || !path || (calls && !strstr(calls, call))) return 0;
    const char *slash = strrchr(path, '/');
    const char *name = strchr(pattern, '/') || !slash ? path : slash + 1;
    if (fnmatch(pattern, name, 0) != 0) return 0;
    errno = EIO;
    return 1;
}

static int fails_open_file(const char *call, int handle) {
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

/* Reading still works. */
static int fails_opening(const char *path, int flags) {
    return (flags & O_ACCMODE) != O_RDONLY && fails("open", path);
}

#define MODE_OF(flags)                              \
    mode_t mode = 0;                                \
    if ((flags) & (O_CREAT | O_TMPFILE)) {          \
        va_list rest;                               \
        va_start(rest, flags);                      \
        mode = va_arg(rest, mode_t);                \
        va_end(rest);                               \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return fails_opening(path, flags) ? -1 : NEXT(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return fails_opening(path, flags) ? -1 : NEXT(open64)(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE_OF(flags)
    return fails_opening(path, flags) ? -1 : NEXT(openat)(folder, path, flags, mode);
}

ssize_t write(int handle, const void *data, size_t length) {
    return fails_open_file("write", handle) ? -1 : NEXT(write)(handle, data, length);
}

ssize_t pwrite(int handle, const void *data, size_t length, off_t at) {
    return fails_open_file("write", handle) ? -1 : NEXT(pwrite)(handle, data, length, at);
}

ssize_t pwrite64(int handle, const void *data, size_t length, off64_t at) {
    return fails_open_file("write", handle) ? -1 : NEXT(pwrite64)(handle, data, length, at);
}

ssize_t writev(int handle, const struct iovec *parts, int count) {
    return fails_open_file("write", handle) ? -1 : NEXT(writev)(handle, parts, count);
}

int fsync(int handle) {
    return fails_open_file("fsync", handle) ? -1 : NEXT(fsync)(handle);
}

int fdatasync(int handle) {
    return fails_open_file("fsync", handle) ? -1 : NEXT(fdatasync)(handle);
}

int rename(const char *from, const char *to) {
    return fails("rename", to) ? -1 : NEXT(rename)(from, to);
}
