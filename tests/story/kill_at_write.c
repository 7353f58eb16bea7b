/* A library to be loaded before all others (LD_PRELOAD): kills the process at its n-th write to a store.

   KILL_PATH   what the paths of the files begin with that count
   KILL_AT     the number of the call that ends the process; 0 for none
   KILL_HOW    before the call, after it, or torn: when half of the bytes are written
   KILL_COUNT  a file that is told, when the process ends by itself, how many calls there were: writes, syncs

   write, pwrite, fsync, fdatasync, ftruncate and unlink count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls, syncs;

static int counts(const char *path) {
    const char *prefix = getenv("KILL_PATH");
    return prefix && *prefix && strncmp(path, prefix, strlen(prefix)) == 0;
}

static int counts_descriptor(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return counts(path);
}

static int is_last(void) {
    const char *at = getenv("KILL_AT");
    long number = atomic_fetch_add(&calls, 1) + 1;
    return at && atol(at) == number;
}

static int is_how(const char *how) {
    const char *asked = getenv("KILL_HOW");
    return asked && strcmp(asked, how) == 0;
}

static void die(void) {
    for (;;)
        kill(getpid(), SIGKILL);
}

#define REAL(result, name, ...)                                        \
    static result (*real)(__VA_ARGS__);                                \
    if (!real)                                                         \
        real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* What every call does: `whole` is the call, `half` the call with half of its bytes. */
#define INTERPOSE(counted, half, whole)                                \
    if (!(counted))                                                    \
        return whole;                                                  \
    int last = is_last();                                              \
    if (last && is_how("torn"))                                        \
        (void)!half;                                                   \
    if (last && !is_how("after"))                                      \
        die();                                                         \
    __typeof__(whole) done = whole;                                    \
    if (last)                                                          \
        die();                                                         \
    return done

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    INTERPOSE(counts_descriptor(descriptor), real(descriptor, data, size / 2), real(descriptor, data, size));
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    INTERPOSE(counts_descriptor(descriptor), real(descriptor, data, size / 2, at), real(descriptor, data, size, at));
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    INTERPOSE(counts_descriptor(descriptor), real(descriptor, data, size / 2, at), real(descriptor, data, size, at));
}

static int count_sync(int descriptor) {
    if (!counts_descriptor(descriptor))
        return 0;
    atomic_fetch_add(&syncs, 1);
    return 1;
}

int fsync(int descriptor) {
    REAL(int, "fsync", int);
    INTERPOSE(count_sync(descriptor), 0, real(descriptor));
}

int fdatasync(int descriptor) {
    REAL(int, "fdatasync", int);
    INTERPOSE(count_sync(descriptor), 0, real(descriptor));
}

int ftruncate(int descriptor, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    INTERPOSE(counts_descriptor(descriptor), 0, real(descriptor, size));
}

int ftruncate64(int descriptor, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    INTERPOSE(counts_descriptor(descriptor), 0, real(descriptor, size));
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    INTERPOSE(counts(path), 0, real(path));
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("KILL_COUNT");
    FILE *file = path && *path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld %ld\n", (long)calls, (long)syncs);
        fclose(file);
    }
}
