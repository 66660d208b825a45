/* recall_disk.c: rates of the folders for swap files, kept in the user's cache.
 *
 * The file is a machine file of which only the members of the disk count. Its name is a hash of what they depend on: the
 * version of sluice, the folders and the file systems they are on, and the ranks that share them. */
#include <limits.h>
#include <string.h>

#include "core/hash.h"
#include "core/io.h"
#include "core/thread.h"
#include "machine/measure_disk.h"
#include "machine/recall.h"

/* ---- where rates are kept ---- */

static bool disk_file(const sl_recall *r, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    uint64_t hash = sl_hash_number(sl_hash_text(sluice_version()), r->here->local);
    for (int i = 0; i < r->folder_count; i++) {
        sl_path_info there;
        if (sl_path_look(r->folders[i], &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return false;
        hash = sl_hash_bytes(hash, r->folders[i], strlen(r->folders[i]) + 1);
        hash = sl_hash_number(hash, (int64_t)there.device);
    }
    if (!sl_recall_folder(folder)) return false;
    return snprintf(out, PATH_MAX, "%s/disk-%016llx.json", folder, (unsigned long long)hash) < PATH_MAX;
}

/* What a description says of the disk. */
static void take_disk(sl_machine *to, const sl_machine *from)
{
    static const sl_link links[] = { SL_LINK_DISK_READ, SL_LINK_DISK_WRITE };
    for (int i = 0; i < 2; i++) {
        to->copies[links[i]] = from->copies[links[i]];
        to->link_bytes_per_second[links[i]] = from->link_bytes_per_second[links[i]];
    }
    to->disk_latency = from->disk_latency;
    to->disk_slowdown = from->disk_slowdown;
}

static bool load(const sl_recall *r, sl_machine *rates)
{
    char file[PATH_MAX];
    sl_machine_description d;
    if (!disk_file(r, file) || !sl_path_exists(file) || sl_machine_read(file, &d) != SLUICE_OK) return false;
    if (d.rates.copies[SL_LINK_DISK_READ].count == 0 || d.rates.copies[SL_LINK_DISK_WRITE].count == 0) return false;
    take_disk(rates, &d.rates);
    sl_log_write(r->log, SLUICE_LOG_DETAIL, "rates: those of the disk measured here before (%s)", file);
    return true;
}

static void keep(const sl_recall *r, const sl_machine *rates, double seconds)
{
    char folder[PATH_MAX], file[PATH_MAX];
    sl_machine_description d = { .rates = *rates,
                                 .shared_memory = !r->device->is_cuda,
                                 .ranks = r->ranks,
                                 .threads = r->threads,
                                 .isa = r->isa,
                                 .is_cuda = r->device->is_cuda };
    for (int t = SL_TIER_DEVICE; t <= SL_TIER_HOST; t++) d.rates.capacity[t] = sl_memory_available();
    const bool kept = disk_file(r, file) && sl_recall_folder(folder) && sl_dir_make(folder) == SLUICE_OK &&
                      sl_machine_write(file, &d) == SLUICE_OK;
    sl_log_write(r->log, SLUICE_LOG_NOTE,
                 "rates: the disk was measured in %.1f s: it reads %.2f and writes %.2f GB/s%s%s%s", seconds,
                 rates->link_bytes_per_second[SL_LINK_DISK_READ] * 1e-9,
                 rates->link_bytes_per_second[SL_LINK_DISK_WRITE] * 1e-9, kept ? " (kept in " : "", kept ? file : "",
                 kept ? ")" : "");
}

/* ---- measuring ---- */

static void set_link(sl_machine *m, sl_link link, const sl_rates *found)
{
    const sl_rate_point *largest = &found->points[found->count - 1];
    m->copies[link] = *found;
    m->link_bytes_per_second[link] = largest->work / largest->seconds;
}

/* One number stands for both directions. */
static void set_disk(sl_machine *m, const sl_disk_rates *found)
{
    set_link(m, SL_LINK_DISK_READ, &found->read);
    set_link(m, SL_LINK_DISK_WRITE, &found->write);
    m->disk_slowdown = (found->read_slowdown + found->write_slowdown) / 2;
}

/* Ranks of one machine share its disks, so all measure at once; what the first finds holds for all. */
static sluice_status measure(const sl_recall *r, sl_machine *rates)
{
    sl_comm *comm = r->here->comm;
    sl_disk_rates found = { .read_slowdown = 0 };
    const sl_disk_bench b = { .folders = r->folders,
                              .folder_count = r->folder_count,
                              .bytes = ((uint64_t)512 << 20) / (uint64_t)r->here->local };
    if (r->here->count > 1) SL_TRY(comm->ops->barrier(comm, "measuring the disk"));
    double start = sl_now();
    bool measured = sl_measure_disk(&b, &found) == SLUICE_OK;
    if (r->here->rank != 0) return SLUICE_OK;
    if (measured) {
        set_disk(rates, &found);
        if (!r->anew) keep(r, rates, sl_now() - start);
    } else /* no reason not to plan; whoever opens the swap files says it again */
        sl_log_write(r->log, SLUICE_LOG_NOTE, "rates: those that a disk usually has, as measuring failed: %s",
                     sluice_error());
    return SLUICE_OK;
}

sluice_status sl_machine_recall_disk(const sl_recall *r, sl_machine *rates)
{
    sl_comm *comm = r->here->comm;
    if (r->folder_count == 0) return SLUICE_OK;
    int32_t known = r->here->rank == 0 && !r->anew && load(r, rates);
    if (r->here->count > 1) SL_TRY(comm->ops->broadcast(comm, "known rates of the disk", 0, &known, sizeof known));
    if (!known) {
        if (r->here->count != r->ranks || r->here->local != r->ranks) return SLUICE_OK;
        SL_TRY(measure(r, rates));
    }
    return r->here->count > 1 ? comm->ops->broadcast(comm, "rates of the disk", 0, rates, sizeof *rates) : SLUICE_OK;
}
