/* machine.c: asks the operating system how much memory there is, and the CPU how fast it is. */
#include "machine/machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "machine/device_choice.h"

/* ---- memory ---- */

static bool read_number(const char *path, uint64_t *out)
{
    char text[64];
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    bool ok = fgets(text, sizeof text, f) != NULL && text[0] >= '0' && text[0] <= '9';
    if (ok) *out = strtoull(text, NULL, 10);
    fclose(f);
    return ok;
}

/* The numbers behind `key` at the start of a line, added up; 0 where there is none. */
static uint64_t sum_of_lines(const char *path, const char *key)
{
    char line[256];
    uint64_t bytes = 0, value;
    size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, n) == 0 && sscanf(line + n, " %" SCNu64, &value) == 1) bytes += value;
    fclose(f);
    return bytes;
}

/* The path of this process in cgroup hierarchy `controller` ("memory" for v1, "" for v2). */
static bool cgroup_path(const char *controller, char *out, size_t room)
{
    char line[1024];
    FILE *f = fopen("/proc/self/cgroup", "r");
    bool found = false;
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (strcmp(list + 1, controller) != 0) continue;
        found = snprintf(out, room, "%s", path) < (int)room;
    }
    fclose(f);
    return found;
}

typedef struct cgroup_files {
    const char *controller, *mount, *limit, *used, *file_key;
} cgroup_files;

static const cgroup_files hierarchies[] = {
    { "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file" },
    { "", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file" },
};

/* Room left in one group of a hierarchy; UINT64_MAX where it sets no limit. */
static uint64_t group_room(const cgroup_files *h, const char *path)
{
    char file[2048];
    uint64_t limit, used = 0;
    snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->limit);
    if (!read_number(file, &limit)) return UINT64_MAX;
    snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->used);
    read_number(file, &used);
    snprintf(file, sizeof file, "%s%s/memory.stat", h->mount, path);
    uint64_t cache =
        sum_of_lines(file, h->file_key); /* page cache is given back under pressure: it does not count as used */
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* A limit may sit on any ancestor, so every one of them is asked; inside a container the visible root is the group. */
static uint64_t hierarchy_room(const cgroup_files *h)
{
    char path[1024];
    uint64_t room = group_room(h, "");
    if (!cgroup_path(h->controller, path, sizeof path)) return room;
    for (char *slash; path[0] != '\0'; *slash = '\0') {
        uint64_t here = group_room(h, path);
        if (here < room) room = here;
        slash = strrchr(path, '/');
        if (slash == NULL) break;
    }
    return room;
}

static uint64_t machine_room(void)
{
    uint64_t kib = sum_of_lines("/proc/meminfo", "MemAvailable:");
    return kib > 0 ? kib * 1024 : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t groups_room(void)
{
    uint64_t room = UINT64_MAX;
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        uint64_t group = hierarchy_room(&hierarchies[i]);
        if (group < room) room = group;
    }
    return room;
}

uint64_t sl_memory_available(void)
{
    uint64_t machine = machine_room(), groups = groups_room();
    return machine < groups ? machine : groups;
}

bool sl_memory_is_limited(void)
{
    return groups_room() < machine_room();
}

uint64_t sl_memory_resident(void)
{
    char text[128]; /* steps ask for it: nothing is allocated, and nobody counts the calls */
    unsigned long long total, resident = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%llu %llu", &total, &resident) != 2) resident = 0;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t sl_memory_own(void)
{
    return 1024 * (sum_of_lines("/proc/self/status", "RssAnon:") + sum_of_lines("/proc/self/status", "RssFile:"));
}

uint64_t sl_memory_high_water(void)
{
    return 1024 * sum_of_lines("/proc/self/status", "VmHWM:");
}

void sl_memory_forget_high_water(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f == NULL) return;
    fputs("5", f); /* proc(5): the peak becomes what is resident now */
    fclose(f);
}

uint64_t sl_machine_room(const sl_plan_options *o, uint64_t available)
{
    /* `available` no longer contains what this process has already taken, which is most of the overhead: what is still
     * to come is the difference. */
    uint64_t resident = sl_memory_resident();
    uint64_t to_come = o->overhead_bytes > resident ? o->overhead_bytes - resident : 0;
    uint64_t room = available - available / 20;
    return room > to_come ? room - to_come : 0;
}

/* A budget of 0 becomes the room; one that is told stays, and what the room lacks of it is noted. `outside` of it the
 * arena does not get. */
static void set_budget(sl_plan_options *o, sl_tier t, uint64_t room, uint64_t outside, bool on_device,
                       sl_shortage *short_of)
{
    uint64_t told = o->budget[t];
    o->told[t] = told;
    o->outside[t] = outside;
    o->automatic[t] = told == 0;
    o->budget[t] = told == 0 ? room : told > outside ? told - outside : 1;
    if (told > room + outside && short_of->keys == NULL)
        *short_of = (sl_shortage){ sl_tiers[t].setting, told, room + outside, false, on_device, false };
}

void sl_machine_budgets(sl_plan_options *o, uint64_t room, sl_shortage *short_of)
{
    *short_of = (sl_shortage){ .keys = NULL };
    set_budget(o, SL_TIER_DEVICE, room, 0, false, short_of);
    set_budget(o, SL_TIER_HOST, room, 0, false, short_of);
    uint64_t device = o->told[SL_TIER_DEVICE], host = o->told[SL_TIER_HOST];
    bool one = device <= room || host <= room; /* at most one of them is too much by itself */
    if (device > 0 && host > 0 && device + host > room && (short_of->keys == NULL || !one))
        *short_of = (sl_shortage){ "memory.device and memory.host", device + host, room, true, false, false };
    /* an automatic host tier gets what the device leaves */
    o->budget_together = short_of->keys == NULL ? room : o->budget[SL_TIER_DEVICE] + o->budget[SL_TIER_HOST];
}

void sl_machine_split_budgets(sl_plan_options *o, uint64_t device_room, uint64_t host_room, sl_shortage *short_of)
{
    *short_of = (sl_shortage){ .keys = NULL };
    set_budget(o, SL_TIER_DEVICE, device_room, SL_CUDA_OVERHEAD_BYTES, true, short_of);
    set_budget(o, SL_TIER_HOST, host_room, 0, false, short_of);
    o->budget_together = 0;
}

/* Less 5 %, less what the program takes there outside its arenas. */
static uint64_t usable(uint64_t capacity, uint64_t overhead)
{
    uint64_t room = capacity - capacity / 20;
    return room > overhead ? room - overhead : 0;
}

void sl_machine_described_budgets(sl_plan_options *o, const sl_machine_description *d, sl_shortage *short_of)
{
    const uint64_t *capacity = d->rates.capacity;
    if (d->shared_memory) {
        sl_machine_budgets(o, usable(capacity[SL_TIER_DEVICE], o->overhead_bytes), short_of);
        return;
    }
    uint64_t host = usable(capacity[SL_TIER_HOST], o->overhead_bytes);
    if (d->is_cuda) {
        sl_machine_split_budgets(o, usable(capacity[SL_TIER_DEVICE], SL_CUDA_OVERHEAD_BYTES), host, short_of);
        return;
    }
    *short_of = (sl_shortage){ .keys = NULL };
    set_budget(o, SL_TIER_DEVICE, usable(capacity[SL_TIER_DEVICE], 0), 0, true, short_of);
    set_budget(o, SL_TIER_HOST, host, 0, false, short_of);
    o->budget_together = 0;
}

/* ---- rates ---- */

sluice_status sl_machine_isa(sl_isa *out)
{
    return sl_isa_choose(getenv("SLUICE_CPU"), out);
}

/* Memory bandwidth, which saturates with a few cores: those of a small machine sooner than a server's, and who has many
 * has a server. Between the rows it is linear, beyond the last constant. */
static double memory_bytes_per_second(int threads)
{
    static const struct {
        double threads, rate;
    } rows[] = { { 0, 0 }, { 4, 40e9 }, { 8, 85e9 }, { 16, 115e9 } };
    enum { LAST = sizeof rows / sizeof rows[0] - 1 };
    for (int i = 0; i < LAST; i++) {
        double share = (threads - rows[i].threads) / (rows[i + 1].threads - rows[i].threads);
        if (share <= 1) return rows[i].rate + share * (rows[i + 1].rate - rows[i].rate);
    }
    return rows[LAST].rate;
}

void sl_machine_describe(sl_isa isa, int threads, sl_machine *m)
{
    static const struct {
        double f32, bf16;
    } gemm_per_thread[SL_ISA_COUNT] = {
        [SL_ISA_SCALAR] = { 1e9, 1e9 },
        [SL_ISA_AVX2] = { 40e9, 40e9 },
        [SL_ISA_AVX512] = { 100e9, 100e9 },
        [SL_ISA_AMX] = { 100e9, 700e9 }, /* packing included; the tiles alone do twice that */
    };
    sl_machine_default(m);
    m->gemm_flops = gemm_per_thread[isa].f32 * threads;
    m->gemm_16bit_flops = gemm_per_thread[isa].bf16 * threads;
    m->vector_flops = m->gemm_flops / 8;
    m->device_bytes_per_second = m->update_bytes_per_second = memory_bytes_per_second(threads);
    sl_machine_set_links(m, 8e9);
    m->copies_overlap = threads > 1;
    m->kernels_take_turns = true;
}
