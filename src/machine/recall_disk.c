/* recall_disk.c: rates of the folders for swap files, kept in the user's cache.
 *
 * The file is a machine file of which only the members of the disk count. Its name is a hash of what they depend on: the
 * version of sluice and how it measures, the processor, the folders with the file systems and devices they are on, and the
 * ranks that share them. So another disk in the same place, or another machine with the same home directory, is measured
 * for itself. */
#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>

#include "comm/agree.h"
#include "core/hash.h"
#include "core/io.h"
#include "core/thread.h"
#include "machine/measure_disk.h"
#include "machine/recall.h"

#define NAME_PREFIX "disk-"

/* ---- where rates are kept ---- */

/* False: it is no folder. */
static bool add_folder(const char *folder, uint64_t *hash)
{
    sl_path_info there;
    struct statvfs fs;
    if (sl_path_look(folder, &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return false;
    if (statvfs(folder, &fs) != 0) return false;
    *hash = sl_hash_bytes(*hash, folder, strlen(folder) + 1);
    const int64_t numbers[] = { (int64_t)there.device, (int64_t)fs.f_fsid, (int64_t)fs.f_blocks };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) *hash = sl_hash_number(*hash, numbers[i]);
    return true;
}

static bool disk_file(const sl_disk_set *s, char out[PATH_MAX])
{
    char folder[PATH_MAX], cpu[128];
    uint64_t hash = sl_hash_number(sl_hash_text(sluice_version()), SL_RECALL_REVISION);
    hash = sl_hash_number(hash, s->ranks);
    sl_cpu_model(cpu, sizeof cpu);
    hash = sl_hash_bytes(hash, cpu, strlen(cpu));
    for (int i = 0; i < s->folder_count; i++)
        if (!add_folder(s->folders[i], &hash)) return false;
    if (!sl_recall_folder(folder)) return false;
    return snprintf(out, PATH_MAX, "%s/" NAME_PREFIX "%016llx.json", folder, (unsigned long long)hash) < PATH_MAX;
}

/* What a description says of the disk. */
static void take_disk(sl_machine *to, const sl_machine *from)
{
    static const sl_link links[] = { SL_LINK_DISK_READ, SL_LINK_DISK_WRITE };
    for (int i = 0; i < 2; i++) {
        to->copies[links[i]] = from->copies[links[i]];
        to->link_bytes_per_second[links[i]] = from->link_bytes_per_second[links[i]];
    }
    for (int d = 0; d < 2; d++) to->disk_beside[d] = from->disk_beside[d];
    to->disk_latency = from->disk_latency;
    to->disk_read_slowdown = from->disk_read_slowdown;
    to->disk_write_slowdown = from->disk_write_slowdown;
    to->disk_processor = from->disk_processor;
}

/* False: it is no file that was kept here. */
static bool read_kept(const char *file, sl_machine_description *d)
{
    if (!sl_path_exists(file) || sl_machine_read(file, d) != SLUICE_OK) return false;
    return d->rates.copies[SL_LINK_DISK_READ].count > 0 && d->rates.copies[SL_LINK_DISK_WRITE].count > 0;
}

static bool load(const sl_disk_set *s, const sl_log *log, sl_machine *rates)
{
    char file[PATH_MAX];
    sl_machine_description d;
    if (!disk_file(s, file) || !read_kept(file, &d)) return false;
    take_disk(rates, &d.rates);
    sl_log_write(log, SLUICE_LOG_DETAIL, "rates: those of the disk measured here before (%s)", file);
    return true;
}

/* The folders as memory.disk_path has them; cut off where they are too long to be told. */
static void join_folders(const sl_disk_set *s, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < s->folder_count && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i > 0 ? ":" : "", s->folders[i]);
}

/* False: there is no place to keep it in. `file` gets its name. */
static bool keep(const sl_disk_set *s, const sl_machine *rates, char file[PATH_MAX])
{
    char folder[PATH_MAX];
    sl_machine_description d = { .shared_memory = true, .ranks = s->ranks, .threads = sl_cpu_count() };
    sl_machine_default(&d.rates); /* nothing else is read of it */
    take_disk(&d.rates, rates);
    for (int t = SL_TIER_DEVICE; t <= SL_TIER_HOST; t++) d.rates.capacity[t] = sl_memory_available();
    join_folders(s, d.disk_folders, sizeof d.disk_folders);
    return disk_file(s, file) && sl_recall_folder(folder) && sl_dir_make(folder) == SLUICE_OK &&
           sl_machine_write(file, &d) == SLUICE_OK;
}

typedef struct disk_listing {
    const char *folder;
    void (*fn)(void *user, const sl_machine_description *d);
    void *user;
} disk_listing;

static sluice_status list_one(void *user, const char *name)
{
    const disk_listing *l = user;
    char file[PATH_MAX];
    sl_machine_description d;
    if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0) return SLUICE_OK;
    if (snprintf(file, sizeof file, "%s/%s", l->folder, name) >= (int)sizeof file) return SLUICE_OK;
    if (read_kept(file, &d)) l->fn(l->user, &d);
    return SLUICE_OK;
}

void sl_recall_list_disks(void (*fn)(void *user, const sl_machine_description *d), void *user)
{
    char folder[PATH_MAX];
    const disk_listing l = { folder, fn, user };
    if (sl_recall_folder(folder) && sl_path_exists(folder)) (void)sl_dir_list(folder, list_one, (void *)&l);
}

/* ---- measuring ---- */

static void set_link(sl_machine *m, sl_link link, const sl_rates *found)
{
    const sl_rate_point *largest = &found->points[found->count - 1];
    m->copies[link] = *found;
    m->link_bytes_per_second[link] = largest->work / largest->seconds;
}

static double slowdown(const sl_rates *alone, const sl_rates *beside)
{
    double s = beside->points[beside->count - 1].seconds / alone->points[alone->count - 1].seconds - 1;
    return s > 0 ? s : 0;
}

static void set_disk(sl_machine *m, const sl_disk_rates *found)
{
    set_link(m, SL_LINK_DISK_READ, &found->read);
    set_link(m, SL_LINK_DISK_WRITE, &found->write);
    m->disk_beside[0] = found->read_beside;
    m->disk_beside[1] = found->write_beside;
    m->disk_read_slowdown = slowdown(&found->read, &found->read_beside);
    m->disk_write_slowdown = slowdown(&found->write, &found->write_beside);
    m->disk_processor = found->processor;
}

/* Of the stores of all ranks; half of what is free, as each takes up to half of its bytes in memory. */
static uint64_t most_bytes(void)
{
    uint64_t half = sl_memory_available() / 2;
    return half < SL_DISK_BENCH_BYTES ? half : SL_DISK_BENCH_BYTES;
}

static sluice_status measure_set(const sl_disk_set *s, sl_machine *rates)
{
    sl_disk_rates found = { .processor = 0 };
    const sl_disk_bench b = { .folders = s->folders,
                              .folder_count = s->folder_count,
                              .bytes = most_bytes() / (uint64_t)s->ranks,
                              .deadline_seconds = s->deadline_seconds };
    sluice_status st = sl_measure_disk(&b, &found);
    sl_memory_forget_high_water();
    if (st == SLUICE_OK) set_disk(rates, &found);
    return st;
}

sluice_status sl_machine_measure_disk(const sl_disk_set *s, sl_machine *rates, char file[PATH_MAX])
{
    SL_TRY(measure_set(s, rates));
    if (!keep(s, rates, file)) file[0] = '\0';
    return SLUICE_OK;
}

static void tell(const sl_recall *r, const sl_machine *rates, double seconds, const char *file)
{
    sl_log_write(r->log, SLUICE_LOG_NOTE,
                 "rates: the disk was measured in %.1f s: it reads %.2f and writes %.2f GB/s%s%s%s", seconds,
                 rates->link_bytes_per_second[SL_LINK_DISK_READ] * 1e-9,
                 rates->link_bytes_per_second[SL_LINK_DISK_WRITE] * 1e-9, file[0] != '\0' ? " (kept in " : "", file,
                 file[0] != '\0' ? ")" : "");
}

/* Ranks of one machine share its disks, so all measure at once; what the first finds holds for all. */
static sluice_status measure(const sl_recall *r, const sl_disk_set *s, sl_machine *rates)
{
    sl_comm *comm = r->here->comm;
    sl_machine found = *rates;
    char file[PATH_MAX] = "";
    if (r->here->count > 1) SL_TRY(comm->ops->barrier(comm, "measuring the disk"));
    double start = sl_now();
    sluice_status st = measure_set(s, &found);
    SL_TRY(sl_agree(comm, "measuring the disk", st == SLUICE_ERR_IO ? st : SLUICE_OK));
    if (r->here->rank != 0) return SLUICE_OK;
    if (st != SLUICE_OK) { /* no reason not to plan; whoever opens the swap files says it again */
        sl_log_write(r->log, SLUICE_LOG_NOTE, "rates: those that a disk usually has, as measuring failed: %s",
                     sluice_error());
        return SLUICE_OK;
    }
    *rates = found;
    if (r->anew || !keep(s, rates, file)) file[0] = '\0';
    tell(r, rates, sl_now() - start, file);
    return SLUICE_OK;
}

sluice_status sl_machine_recall_disk(const sl_recall *r, sl_machine *rates)
{
    sl_comm *comm = r->here->comm;
    const sl_disk_set s = { r->folders, r->folder_count, r->here->local, r->disk_deadline };
    if (r->folder_count == 0) return SLUICE_OK;
    int32_t known = r->here->rank == 0 && !r->anew && load(&s, r->log, rates);
    if (r->here->count > 1) SL_TRY(comm->ops->broadcast(comm, "known rates of the disk", 0, &known, sizeof known));
    if (!known) {
        if (r->here->count != r->ranks || r->here->local != r->ranks) return SLUICE_OK;
        SL_TRY(measure(r, &s, rates));
    }
    return r->here->count > 1 ? comm->ops->broadcast(comm, "rates of the disk", 0, rates, sizeof *rates) : SLUICE_OK;
}
