/* The next write or sync of a journal segment fails with EIO, once, when the file named by FAILING_DISK says "write",
   "sync" or, for the sync of a start, "all of it"; the file is gone then. Whoever tries again what has failed succeeds, and is found out.
   For as long as the file says "space", there is no space for another segment, for as long as it says "log", there
   is none where standard error goes, and for as long as it says "full", none in the audit log; for as long as it says
   "hang", what is written to the audit log waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int ends_with(int descriptor, const char *end) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path), end_size = strlen(end);
    return size >= end_size && !memcmp(path + size - end_size, end, end_size);
}

static int says(const char *call) {
    char said[16] = "";
    int file = open(getenv("FAILING_DISK"), O_RDONLY);
    if (file < 0) return 0;
    ssize_t size = read(file, said, sizeof said - 1);
    close(file);
    return size > 0 && !strncmp(said, call, strlen(call));
}

static int fails(int descriptor, const char *call) {
    if (!ends_with(descriptor, ".segment") || !says(call)) return 0;
    return !strcmp(call, "space") || !unlink(getenv("FAILING_DISK"));
}

#define FAIL(name) if (fails(descriptor, name)) { errno = EIO; return -1; }
#define NEXT(type) ((type) dlsym(RTLD_NEXT, __func__))

ssize_t write(int descriptor, const void *data, size_t size) {
    if (descriptor == STDERR_FILENO && says("log")) { errno = ENOSPC; return -1; }
    if (ends_with(descriptor, "audit.jsonl")) {
        while (says("hang")) usleep(10000);
        if (says("full")) { errno = ENOSPC; return -1; }
    }
    return NEXT(ssize_t (*)(int, const void *, size_t))(descriptor, data, size);
}

int fdatasync(int descriptor) {
    FAIL("sync")
    return NEXT(int (*)(int))(descriptor);
}

int fsync(int descriptor) {
    FAIL("all of it")
    return NEXT(int (*)(int))(descriptor);
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) {
    FAIL("write")
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off_t))(descriptor, parts, count, offset);
}

ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) {
    FAIL("write")
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off64_t))(descriptor, parts, count, offset);
}

ssize_t pwritev2(int descriptor, const struct iovec *parts, int count, off_t offset, int flags) {
    FAIL("write")
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off_t, int))(descriptor, parts, count, offset, flags);
}

ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int count, off64_t offset, int flags) {
    FAIL("write")
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off64_t, int))(descriptor, parts, count, offset, flags);
}

int posix_fallocate(int descriptor, off_t offset, off_t size) {
    if (fails(descriptor, "space")) return ENOSPC;
    return NEXT(int (*)(int, off_t, off_t))(descriptor, offset, size);
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t size) {
    if (fails(descriptor, "space")) return ENOSPC;
    return NEXT(int (*)(int, off64_t, off64_t))(descriptor, offset, size);
}
