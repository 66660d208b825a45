/* doctor.c: the doctor command: what this machine has for training, what it lacks, and how to get it.
 *
 * A check is a row: it looks at one thing and says what it found. `note`: something is slower, or missing that not every run
 * needs. `problem`: sluice cannot train as it was asked to. Whatever is not ok says what to do about it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/memory.h"
#include "backend/cuda_plugin.h"
#include "comm/plugin.h"
#include "core/bytes.h"
#include "core/quote.h"
#include "core/swap.h"
#include "core/thread.h"
#include "format/picture_file.h"
#include "format/sound_file.h"
#include "machine/machine.h"
#include "machine/machine_place.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

typedef enum { LEVEL_OK, LEVEL_NOTE, LEVEL_PROBLEM } level;
static const char *const level_words[] = { "ok", "note", "problem" };

typedef struct finding {
    level level;
    char found[640], remedy[512]; /* remedy: "" where all is well */
} finding;

/* What checks share: earlier ones leave what later ones need. */
typedef struct patient {
    const char *folder;
    bool needs_gpu;               /* what a GPU lacks is a problem, not a note */
    bool has_driver;              /* set by the check of the driver */
    const sl_cuda_plugin *plugin; /* NULL: not open */
    int gpus;                     /* that can be used */
} patient;

static void say(finding *f, level l, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(finding *f, level l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->found, sizeof f->found, format, args);
    va_end(args);
    f->level = l;
}

static void advise(finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void advise(finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->remedy, sizeof f->remedy, format, args);
    va_end(args);
}

/* What the absence of something that only a GPU needs is. */
static level without_gpu(const patient *p)
{
    return p->needs_gpu ? LEVEL_PROBLEM : LEVEL_NOTE;
}

/* ---- the machine ---- */

static void look_at_version(patient *p, finding *f)
{
    (void)p;
    say(f, LEVEL_OK, "sluice %s, glibc %s, compiled by %s", sluice_version(), gnu_get_libc_version(),
#ifdef __clang__
        "clang " __clang_version__
#else
        "gcc " __VERSION__
#endif
    );
}

static void look_at_cpu(patient *p, finding *f)
{
    char model[128];
    sl_isa isa;
    (void)p;
    sl_cpu_model(model, sizeof model);
    if (sl_machine_isa(&isa) != SLUICE_OK) {
        say(f, LEVEL_PROBLEM, "%s", sluice_error());
        advise(f, "unset SLUICE_CPU");
        return;
    }
    say(f, isa == SL_ISA_SCALAR ? LEVEL_NOTE : LEVEL_OK, "%s, %d thread%s, instruction path %s", model, sl_cpu_count(),
        sl_cpu_count() == 1 ? "" : "s", sl_isa_name(isa));
    if (isa == SL_ISA_SCALAR && sl_isa_best() > isa)
        advise(f, "SLUICE_CPU chooses the slowest path: unset it, %s is here", sl_isa_name(sl_isa_best()));
    else if (isa == SL_ISA_SCALAR)
        advise(f,
               "plain C is correct but slow: a CPU with AVX2 is several times as fast; a virtual machine may hide it");
}

static void look_at_memory(patient *p, finding *f)
{
    char text[32];
    uint64_t bytes = sl_memory_available();
    (void)p;
    say(f,
        bytes < 256 * MIB ? LEVEL_PROBLEM
        : bytes < 2 * GIB ? LEVEL_NOTE
                          : LEVEL_OK,
        "%s usable", sl_format_bytes(bytes, text, sizeof text));
    if (bytes < 2 * GIB)
        advise(f,
               "end other programs, or raise the limit of the container or cgroup; sluice plan says what a run needs");
}

static void look_at_huge_pages(patient *p, finding *f)
{
    char why[2][64];
    bool own = sl_huge_pages_offered(false, why[0], sizeof why[0]);
    bool shared = sl_huge_pages_offered(true, why[1], sizeof why[1]);
    (void)p;
    say(f, own ? LEVEL_OK : LEVEL_NOTE, "%s (%s); for arenas that ranks share: %s (%s)", own ? "yes" : "no", why[0],
        shared ? "yes" : "no", why[1]);
    if (!own)
        advise(f, "updates and copies are slower without: as root, "
                  "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

static void look_at_nodes(patient *p, finding *f)
{
    sl_rank_place place;
    sl_topology t;
    (void)p;
    sl_rank_place_choose(0, 0, 1, &place);
    sl_topology_read(&t);
    bool blind = !sl_topology_built_in();
    say(f, blind ? LEVEL_NOTE : LEVEL_OK, "%s; hwloc %s", place.note, blind ? "not built in" : "built in");
    if (blind) advise(f, "on machines with several sockets ranks are not bound: build where libhwloc-dev is installed");
}

/* ---- limits ---- */

static const char *limit_text(rlim_t value, char *buf, size_t bytes)
{
    if (value == RLIM_INFINITY) return "no limit";
    return sl_format_bytes(value, buf, bytes);
}

static void look_at_locked_memory(patient *p, finding *f)
{
    char text[32];
    struct rlimit limit = { 0 };
    getrlimit(RLIMIT_MEMLOCK, &limit);
    bool low = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < GIB;
    say(f, low && (p->needs_gpu || access("/dev/nvidiactl", F_OK) == 0) ? LEVEL_NOTE : LEVEL_OK, "%s",
        limit_text(limit.rlim_cur, text, sizeof text));
    if (f->level == LEVEL_NOTE)
        advise(f, "some drivers pin no more than that for copies to a GPU: ulimit -l unlimited "
                  "(container: --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK)");
}

static void look_at_core_files(patient *p, finding *f)
{
    char text[32];
    struct rlimit limit = { 0 };
    (void)p;
    getrlimit(RLIMIT_CORE, &limit);
    bool large = limit.rlim_cur > GIB;
    say(f, large ? LEVEL_NOTE : LEVEL_OK, "%s", limit_text(limit.rlim_cur, text, sizeof text));
    if (large) advise(f, "a crash may write a file as large as the memory of the run: ulimit -c 0 prevents that");
}

static void look_at_open_files(patient *p, finding *f)
{
    struct rlimit limit = { 0 };
    (void)p;
    getrlimit(RLIMIT_NOFILE, &limit);
    bool few = limit.rlim_cur < 1024;
    say(f, few ? LEVEL_NOTE : LEVEL_OK, "%llu", (unsigned long long)limit.rlim_cur);
    if (few) advise(f, "many ranks and models of many files need more: ulimit -n 4096");
}

static void look_at_shared_memory(patient *p, finding *f)
{
    char text[32];
    struct statvfs fs;
    (void)p;
    if (statvfs("/dev/shm", &fs) != 0) {
        say(f, LEVEL_NOTE, "/dev/shm: %s", strerror(errno));
        advise(f, "ranks of --ranks do without; MPI and NCCL want it: mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    uint64_t bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    say(f, bytes < 256 * MIB ? LEVEL_NOTE : LEVEL_OK, "/dev/shm of %s", sl_format_bytes(bytes, text, sizeof text));
    if (bytes < 256 * MIB)
        advise(f, "ranks of --ranks do without; MPI and NCCL want more: give a container --shm-size=1g or --ipc=host");
}

/* ---- GPU ---- */

static void look_at_driver(patient *p, finding *f)
{
    char version[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (file != NULL) {
        if (fgets(version, sizeof version, file) == NULL) version[0] = '\0';
        fclose(file);
        version[strcspn(version, "\n")] = '\0';
    }
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    p->has_driver = library != NULL;
    if (p->has_driver) {
        say(f, LEVEL_OK, "libcuda.so.1%s%s", version[0] != '\0' ? ", " : "", version);
        return;
    }
    say(f, version[0] != '\0' ? LEVEL_NOTE : without_gpu(p), "none: %s", dlerror());
    if (p->needs_gpu) f->level = LEVEL_PROBLEM;
    advise(f, "for an NVIDIA GPU install the driver (Debian: nvidia-driver; in a container: docker run --gpus all); "
              "without a GPU sluice trains on the CPU");
}

static void look_at_plugin(patient *p, finding *f)
{
    if (sl_cuda_open_plugin(&p->plugin) == SLUICE_OK) {
        char path[PATH_MAX];
        sl_plugin_find(SL_CUDA_PLUGIN_FILE, path);
        say(f, LEVEL_OK, "%.500s", path);
        return;
    }
    p->plugin = NULL;
    say(f, p->has_driver ? without_gpu(p) : p->needs_gpu ? LEVEL_PROBLEM : LEVEL_NOTE, "%.600s", sluice_error());
    advise(f, "only for GPUs: build with nvcc on the PATH (make), or take the archive that has the plugin (make dist)");
}

static void look_at_gpus(patient *p, finding *f)
{
    char total[32], unused[32];
    int count = 0;
    if (p->plugin == NULL || p->plugin->count(&count) != SLUICE_OK || count == 0) {
        say(f, without_gpu(p), "none%s%.500s", p->plugin != NULL && count == 0 ? ": " : "",
            p->plugin != NULL && count == 0 ? sluice_error() : "");
        advise(f, p->needs_gpu ? "see the lines above; CUDA_VISIBLE_DEVICES may hide it, nvidia-smi shows it"
                               : "nothing to do where the CPU is enough; nvidia-smi shows what the driver sees");
        return;
    }
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        sl_cuda_facts g;
        if (p->plugin->facts(i, &g) != SLUICE_OK) continue;
        bool usable = g.major >= SL_CUDA_LEAST_MAJOR;
        p->gpus += usable;
        int wrote =
            snprintf(f->found + end, sizeof f->found - end, "%s%s (%d.%d%s), %s, %s free", i > 0 ? "; " : "", g.name,
                     g.major, g.minor, usable ? "" : ": too old", sl_format_bytes(g.total_bytes, total, sizeof total),
                     sl_format_bytes(g.free_bytes, unused, sizeof unused));
        if (wrote > 0 && (size_t)wrote < sizeof f->found - end) end += (size_t)wrote;
    }
    f->level = p->gpus > 0 ? LEVEL_OK : without_gpu(p);
    if (p->gpus == 0) advise(f, "sluice needs compute capability %d.0 or newer", SL_CUDA_LEAST_MAJOR);
}

static void look_at_gpu_libraries(patient *p, finding *f)
{
    static const struct {
        const char *name, *remedy;
    } wanted[] = {
        { "cuBLASLt", "cuBLASLt is needed: install the CUDA toolkit or its package libcublas, or add its folder to "
                      "LD_LIBRARY_PATH" },
        { "NCCL", "several GPUs talk through NCCL: install libnccl2, or name its file in SLUICE_NCCL" },
        { "cuDNN", "convolutions are slower without cuDNN 9: install cudnn9-cuda (or pip's nvidia-cudnn) and add its "
                   "folder to LD_LIBRARY_PATH" },
    };
    if (p->gpus == 0) {
        say(f, LEVEL_OK, "not looked for: there is no GPU to use them");
        return;
    }
    const char *here = p->plugin->libraries();
    say(f, LEVEL_OK, "%s", here);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char absent[32];
        snprintf(absent, sizeof absent, "%s not found", wanted[i].name);
        if (strstr(here, wanted[i].name) != NULL && strstr(here, absent) == NULL) continue;
        f->level = i == 0 ? without_gpu(p) : LEVEL_NOTE;
        advise(f, "%s", wanted[i].remedy);
        return;
    }
}

/* ---- other parts ---- */

static void look_at_mpi(patient *p, finding *f)
{
    const sl_comm_plugin *plugin;
    char path[PATH_MAX];
    (void)p;
    if (sl_comm_open_plugin("the MPI part of sluice", &plugin) == SLUICE_OK) {
        sl_plugin_find(SL_COMM_PLUGIN_FILE, path);
        say(f, LEVEL_OK, "%.500s", path);
        return;
    }
    say(f, LEVEL_NOTE, "%.600s", sluice_error());
    advise(
        f,
        "only for several machines: install openmpi-bin (to build: libopenmpi-dev); on one machine --ranks is enough");
}

static void look_at_swap_files(patient *p, finding *f)
{
    char why[256];
    (void)p;
    bool works = sl_swap_uring_works(why, sizeof why);
    say(f, works ? LEVEL_OK : LEVEL_NOTE, "%s", works ? "read and written by io_uring" : why);
    if (works) return;
    advise(f, "threads do it, which costs more of the CPU: %s",
           sl_swap_uring_built_in() ? "use Linux 5.11 or newer, and allow io_uring (sysctl kernel.io_uring_disabled=0; "
                                      "container: --security-opt seccomp=unconfined)"
                                    : "build where liburing-dev is installed");
}

static void look_at_formats(patient *p, finding *f)
{
    const char *pictures = sl_picture_formats(), *sounds = sl_sound_formats();
    (void)p;
    bool all = strcmp(pictures, "png, jpeg") == 0 && sounds[0] != '\0';
    say(f, all ? LEVEL_OK : LEVEL_NOTE, "images: %s; sound: %s", pictures[0] != '\0' ? pictures : "none",
        sounds[0] != '\0' ? sounds : "none");
    if (!all)
        advise(f, "build where libpng-dev, libjpeg-dev and libsndfile1-dev are installed, if such data is needed");
}

/* ---- the folder of checkpoints ---- */

/* What the kernel calls the kinds of file systems that matter to a run. */
static const char *file_system(const char *path, bool *network, bool *memory)
{
    static const struct {
        long magic;
        const char *name;
        bool network, memory;
    } kinds[] = {
        { 0xef53, "ext4", false, false },        { 0x58465342, "xfs", false, false },
        { 0x9123683e, "btrfs", false, false },   { 0x01021994, "tmpfs", false, true },
        { 0x794c7630, "overlay", false, false }, { 0x2fc12fc1, "zfs", false, false },
        { 0x6969, "nfs", true, false },          { 0x0bd00bd0, "lustre", true, false },
        { 0xfe534d42, "smb", true, false },      { 0x65735546, "fuse", true, false },
        { 0x47504653, "gpfs", true, false },     { 0x00c36400, "ceph", true, false },
    };
    struct statfs fs;
    *network = *memory = false;
    if (statfs(path, &fs) != 0) return "unknown file system";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if ((unsigned long)fs.f_type != (unsigned long)kinds[i].magic) continue;
        *network = kinds[i].network;
        *memory = kinds[i].memory;
        return kinds[i].name;
    }
    return "other file system";
}

/* Bytes a second that reach the disk of `folder`; 0 with errno: it cannot be written. */
static double write_rate(const char *folder)
{
    enum { CHUNK = 1 << 20, MOST = 64 };
    char path[PATH_MAX];
    struct timespec begin, now;
    double seconds = 0, done = 0;
    snprintf(path, sizeof path, "%s/.sluice-doctor-XXXXXX", folder);
    int fd = mkstemp(path);
    if (fd < 0) return 0;
    unlink(path);
    char *chunk = calloc(1, CHUNK);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; chunk != NULL && i < MOST && seconds < 1; i++) {
        memset(chunk, i + 1, CHUNK); /* some disks leave out what is zero or the same */
        if (write(fd, chunk, CHUNK) != CHUNK) break;
        if (i % 8 == 7 && fdatasync(fd) != 0) break;
        if (i % 8 == 7) done = (double)(i + 1) * CHUNK;
        clock_gettime(CLOCK_MONOTONIC, &now);
        seconds = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
    }
    int error = errno;
    free(chunk);
    close(fd);
    errno = error;
    return seconds > 0 ? done / seconds : 0;
}

/* Whether the disk turns, by the kernel's word; false where it is not known. */
static bool turns(const char *folder)
{
    struct stat info;
    char path[128], word = '0';
    if (stat(folder, &info) != 0) return false;
    for (int up = 0; up < 2; up++) { /* a partition has it in its disk's folder */
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%squeue/rotational", major(info.st_dev), minor(info.st_dev),
                 up == 1 ? "../" : "");
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        word = (char)fgetc(file);
        fclose(file);
        break;
    }
    return word == '1';
}

static void look_at_folder(patient *p, finding *f)
{
    char text[32], rate_text[32];
    bool network, memory;
    struct statvfs room;
    sl_quoted name = sl_quote(p->folder);
    if (statvfs(p->folder, &room) != 0) {
        say(f, LEVEL_PROBLEM, "%s: %s", name.text, strerror(errno));
        advise(f, "make the folder, or name another: sluice doctor FOLDER");
        return;
    }
    double rate = write_rate(p->folder);
    if (rate <= 0) {
        say(f, LEVEL_PROBLEM, "%s cannot be written: %s", name.text, strerror(errno));
        advise(f, "checkpoints need a folder with room that this user may write: set checkpoint.path to one");
        return;
    }
    uint64_t bytes = (uint64_t)room.f_bavail * room.f_frsize;
    const char *kind = file_system(p->folder, &network, &memory);
    const bool fast = rate >= 500e6, turning = !fast && turns(p->folder); /* of virtual disks the kernel says so, too */
    const char *class = memory ? "memory" : fast ? "fast" : rate >= 100e6 ? "medium" : "slow";
    say(f, rate < 100e6 || memory || bytes < 4 * GIB ? LEVEL_NOTE : LEVEL_OK,
        "%s: %s free, %s%s%s, %s (%s/s to the disk)", name.text, sl_format_bytes(bytes, text, sizeof text), kind,
        network ? " over a network" : "", turning ? " on a turning disk" : "", class,
        sl_format_bytes((uint64_t)rate, rate_text, sizeof rate_text));
    if (memory)
        advise(f, "what is kept here is lost when the machine stops, and counts as memory: use a disk for checkpoints");
    else if (bytes < 4 * GIB)
        advise(f, "a checkpoint takes 12 to 16 bytes a parameter, and checkpoint.keep of them are kept");
    else if (rate < 100e6)
        advise(f, "saving will be slow: save less often (checkpoint.every) or beside training (checkpoint.background)");
}

static void look_at_terminal(patient *p, finding *f)
{
    const char *variables[] = { "LC_ALL", "LC_CTYPE", "LANG" }, *locale = "";
    const char *terminal = getenv("TERM");
    (void)p;
    for (int i = 2; i >= 0; i--) {
        const char *value = getenv(variables[i]);
        if (value != NULL && value[0] != '\0') locale = value;
    }
    bool wide = strcasestr(locale, "utf-8") != NULL || strcasestr(locale, "utf8") != NULL;
    say(f, wide ? LEVEL_OK : LEVEL_NOTE, "locale %s, terminal %s",
        locale[0] != '\0' ? sl_quote(locale).text : "not set", terminal != NULL ? sl_quote(terminal).text : "not set");
    if (!wide) advise(f, "texts are written as UTF-8; to see them so: export LANG=C.UTF-8");
}

/* ---- all of them ---- */

static const struct check {
    const char *name;
    void (*look)(patient *p, finding *f);
} checks[] = {
    { "version", look_at_version },
    { "cpu", look_at_cpu },
    { "memory", look_at_memory },
    { "huge pages", look_at_huge_pages },
    { "NUMA", look_at_nodes },
    { "locked memory", look_at_locked_memory },
    { "core files", look_at_core_files },
    { "open files", look_at_open_files },
    { "shared memory", look_at_shared_memory },
    { "GPU driver", look_at_driver },
    { "CUDA plugin", look_at_plugin },
    { "GPU", look_at_gpus },
    { "GPU libraries", look_at_gpu_libraries },
    { "MPI", look_at_mpi },
    { "swap files", look_at_swap_files },
    { "formats", look_at_formats },
    { "folder", look_at_folder },
    { "terminal", look_at_terminal },
};
enum { CHECK_COUNT = sizeof checks / sizeof checks[0] };

static void print_line(const char *name, const finding *f, FILE *out)
{
    fprintf(out, "%-8s %-14s %s\n", level_words[f->level], name, f->found);
    if (f->remedy[0] != '\0') fprintf(out, "%-8s %-14s -> %s\n", "", "", f->remedy);
}

static void print_json_text(const char *key, const char *text, FILE *out)
{
    char piece[SL_ESCAPE_BYTES];
    fprintf(out, "\"%s\":\"", key);
    while (*text != '\0') {
        text += sl_json_escape(text, piece);
        fputs(piece, out);
    }
    fputc('"', out);
}

static void print_json(const char *name, const finding *f, bool first, FILE *out)
{
    fputs(first ? "{" : ",{", out);
    print_json_text("check", name, out);
    fprintf(out, ",\"level\":\"%s\",", level_words[f->level]);
    print_json_text("found", f->found, out);
    fputc(',', out);
    print_json_text("remedy", f->remedy, out);
    fputc('}', out);
}

sluice_status sluice_doctor(const char *folder, sluice_device device, bool json, FILE *out)
{
    SL_NEED(out);
    if ((unsigned)device > SLUICE_DEVICE_AUTO)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_doctor: there is no device %d", (int)device);
    patient p = { .folder = folder != NULL && folder[0] != '\0' ? folder : ".",
                  .needs_gpu = device == SLUICE_DEVICE_CUDA };
    const char *where = p.needs_gpu ? "the GPU" : "the CPU";
    char problems[256] = "";
    if (json) fprintf(out, "{\"sluice\":\"%s\",\"checks\":[", sluice_version());
    for (int i = 0; i < CHECK_COUNT; i++) {
        finding f = { 0 };
        checks[i].look(&p, &f);
        if (json)
            print_json(checks[i].name, &f, i == 0, out);
        else
            print_line(checks[i].name, &f, out);
        fflush(out);
        size_t end = strlen(problems);
        if (f.level == LEVEL_PROBLEM)
            snprintf(problems + end, sizeof problems - end, "%s%s", end > 0 ? ", " : "", checks[i].name);
    }
    bool well = problems[0] == '\0';
    if (json)
        fprintf(out, "],\"can_train\":%s,\"device\":\"%s\"}\n", well ? "true" : "false", p.needs_gpu ? "cuda" : "cpu");
    else if (well)
        fprintf(out, "sluice can train on %s here%s\n", where, !p.needs_gpu && p.gpus > 0 ? ", and on the GPU" : "");
    if (well) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "sluice cannot train on %s as things are; problems: %s", where, problems);
}
