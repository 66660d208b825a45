/* disk_fault.c: linked into the program, makes its disk tier fail as tests/support/disk_fault.h says. */
#include "support/disk_fault.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/io.h"
#include "support/swap_file.h"

static struct {
    disk_fault fault;
    char call[32];
    disk_fault_counts *counts; /* shared by all processes of the job */
} told;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Behind the store's back, and on the disk when this returns. */
static void turn_bit_of_file(const char *folder)
{
    struct stat info;
    unsigned char byte;
    int fd = swap_file_behind(folder);
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size <= 0) _exit(98);
    uint64_t bit = mixed((uint64_t)told.fault.value + 1) % ((uint64_t)info.st_size * 8);
    if (pread(fd, &byte, 1, (off_t)(bit / 8)) != 1) _exit(98);
    byte = (unsigned char)(byte ^ (1 << bit % 8));
    if (pwrite(fd, &byte, 1, (off_t)(bit / 8)) != 1 || fdatasync(fd) != 0) _exit(98);
    close(fd);
}

static int strike(const char *folder)
{
    const disk_fault *f = &told.fault;
    __atomic_add_fetch(&told.counts->struck, 1, __ATOMIC_SEQ_CST);
    switch (f->kind) {
    case DISK_FAILS:
        return f->value;
    case DISK_SHORT:
        return -f->value;
    case DISK_NEVER:
        return SL_IO_NEVER;
    case DISK_FLIP_READ:
        return SL_IO_FLIP;
    case DISK_SLOW:
        usleep((useconds_t)f->value);
        return 0;
    case DISK_FLIP_FILE:
        turn_bit_of_file(folder);
        return 0;
    case DISK_KILL:
    case DISK_KILL_PARENT:
        kill(f->kind == DISK_KILL ? getpid() : getppid(), SIGKILL);
        sleep(20); /* the blow is on its way */
        _exit(98);
    default:
        return 0;
    }
}

static int on_call(void *user, const char *call, const char *path)
{
    const disk_fault *f = &told.fault;
    (void)user;
    if (f->threads && strcmp(call, "io_uring") == 0) return ENOSYS;
    if (strncmp(call, told.call, strlen(told.call)) != 0) return 0;
    int n = __atomic_add_fetch(&told.counts->calls, 1, __ATOMIC_SEQ_CST);
    bool now = f->nth > 0 && (n == f->nth || (n > f->nth && f->every > 0 && (n - f->nth) % f->every == 0));
    return now ? strike(path) : 0;
}

static disk_fault_counts *share_counts(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *memory = mmap(NULL, sizeof(disk_fault_counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || memory == MAP_FAILED) _exit(97);
    close(fd);
    return memory;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv(DISK_FAULT_VARIABLE), *counts = getenv(DISK_COUNT_VARIABLE);
    disk_fault *f = &told.fault;
    int kind, threads;
    if (text == NULL || counts == NULL) return;
    if (sscanf(text, "%31s %d %d %d %d %d", told.call, &f->nth, &f->every, &kind, &f->value, &threads) != 6) _exit(97);
    f->kind = (disk_fault_kind)kind;
    f->threads = threads != 0;
    told.counts = share_counts(counts);
    sl_io_set_hook(on_call, NULL);
}
