/* A disk that hangs, for one process (LD_PRELOAD): writes to files below $HUNG_BELOW, and their syncs, do not come back
 * while the file $HUNG_WHILE is there; syncs alone while $HUNG_WHILE.syncs is. Writes into maps are not seen here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int flagged(int sync) {
    const char *flag = getenv("HUNG_WHILE");
    char syncs[4096];
    if (flag == NULL) return 0;
    if (access(flag, F_OK) == 0) return 1;
    snprintf(syncs, sizeof syncs, "%s.syncs", flag);
    return sync && access(syncs, F_OK) == 0;
}

static int below(int fd) {
    const char *root = getenv("HUNG_BELOW");
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0 || root == NULL) return 0;
    path[size] = 0;
    return strncmp(path, root, strlen(root)) == 0;
}

static void hold(int fd, int sync) {
    const struct timespec moment = {0, 5000000};
    int kept = errno;
    if (flagged(sync) && below(fd))
        while (flagged(sync)) nanosleep(&moment, NULL);
    errno = kept;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    hold(fd, 0);
    return REAL(write)(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    hold(fd, 0);
    return REAL(writev)(fd, parts, count);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    hold(fd, 0);
    return REAL(pwrite)(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    hold(fd, 0);
    return REAL(pwrite64)(fd, data, size, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    hold(fd, 0);
    return REAL(pwritev)(fd, parts, count, at);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    hold(fd, 0);
    return REAL(pwritev64v2)(fd, parts, count, at, flags);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    hold(fd, 0);
    return REAL(posix_fallocate64)(fd, at, size);
}

int fsync(int fd) {
    hold(fd, 1);
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    hold(fd, 1);
    return REAL(fdatasync)(fd);
}

int msync(void *at, size_t size, int flags) {
    const struct timespec moment = {0, 5000000};
    while (flagged(1)) nanosleep(&moment, NULL); /* a map has no descriptor: all of them are the store's */
    return REAL(msync)(at, size, flags);
}

/* What the kernel syncs by itself cannot be held: it offers that not, and threads call fdatasync. */
long syscall(long number, ...) {
    va_list words;
    long a[6];
    if (number == SYS_io_setup) {
        errno = ENOSYS;
        return -1;
    }
    va_start(words, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(words, long);
    va_end(words);
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
