/* cpu_count.c: how many CPUs this process may use.
 *
 * The affinity mask says which CPUs, the cgroup's quota how much of them; containers usually set only the quota, and a
 * pool sized by the mask alone would be throttled in the middle of every step. Quotas nest, so every ancestor
 * counts. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/io.h"
#include "core/thread.h"

#define MAX_CPUS 8192

/* CPUs for a quota in microseconds of CPU time per period of time, rounded up; INT_MAX where there is no quota. */
static int cpus_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return INT_MAX;
    long long cpus = (quota - 1) / period + 1;
    return cpus > INT_MAX ? INT_MAX : (int)cpus;
}

/* cgroup v2: "max 100000" or "150000 100000" in cpu.max. */
static int limit_v2(const char *folder)
{
    char path[PATH_MAX], text[128];
    long long quota, period;
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= PATH_MAX) return INT_MAX;
    if (!sl_file_peek(path, text, sizeof text)) return INT_MAX;
    return sscanf(text, "%lld %lld", &quota, &period) == 2 ? cpus_of(quota, period) : INT_MAX;
}

static long long read_number(const char *folder, const char *name)
{
    char path[PATH_MAX], text[64];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX) return -1;
    return sl_file_peek(path, text, sizeof text) ? strtoll(text, NULL, 10) : -1;
}

/* cgroup v1: quota -1 means none. */
static int limit_v1(const char *folder)
{
    return cpus_of(read_number(folder, "cpu.cfs_quota_us"), read_number(folder, "cpu.cfs_period_us"));
}

/* The smallest limit of the group `group` ("/a/b") under `mount` and of all its ancestors. */
static int limit_of_group(const char *mount, const char *group, int (*limit)(const char *folder))
{
    char folder[PATH_MAX];
    size_t mount_length = strlen(mount);
    int least = INT_MAX;
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= PATH_MAX) return least;
    for (;;) {
        int here = limit(folder);
        if (here < least) least = here;
        char *slash = strrchr(folder + mount_length, '/');
        if (slash == NULL) return least;
        *slash = '\0';
    }
}

/* Whether the comma-separated list has `cpu` as a whole word (not cpuset, not cpuacct). */
static bool lists_cpu(const char *controllers)
{
    for (const char *p = controllers; p != NULL; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (strncmp(p, "cpu", 3) == 0 && (p[3] == ',' || p[3] == '\0')) return true;
    }
    return false;
}

/* One line "id:controllers:/group" of /proc/self/cgroup; no controllers: version 2. */
static int limit_of_line(char *line, const char *root)
{
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) return INT_MAX;
    *group++ = '\0';
    controllers++;
    if (strcmp(group, "/") == 0) group = "";
    if (controllers[0] == '\0') {
        int plain = limit_of_group(root, group, limit_v2);
        if (snprintf(mount, sizeof mount, "%s/unified", root) >= PATH_MAX) return plain;
        int hybrid = limit_of_group(mount, group, limit_v2);
        return hybrid < plain ? hybrid : plain;
    }
    if (!lists_cpu(controllers)) return INT_MAX;
    if (snprintf(mount, sizeof mount, "%s/cpu", root) >= PATH_MAX) return INT_MAX; /* a link where it is cpu,cpuacct */
    return limit_of_group(mount, group, limit_v1);
}

int sl_cgroup_cpu_limit(const char *membership, const char *root)
{
    char text[4096], *save = NULL;
    int least = INT_MAX;
    if (!sl_file_peek(membership, text, sizeof text)) return least;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        int limit = limit_of_line(line, root);
        if (limit < least) least = limit;
    }
    return least;
}

/* CPUs in the affinity mask. The mask grows until the kernel accepts its size. */
static int affinity_count(void)
{
    for (int cpus = 1024; cpus <= MAX_CPUS; cpus *= 2) {
        cpu_set_t set[MAX_CPUS / 1024];
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        if (sched_getaffinity(0, bytes, set) == 0) return CPU_COUNT_S(bytes, set);
    }
    return 1;
}

int sl_cpu_count(void)
{
    int allowed = affinity_count(), limit = sl_cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    int cpus = limit < allowed ? limit : allowed;
    return cpus < 1 ? 1 : cpus;
}
