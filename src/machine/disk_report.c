/* disk_report.c: how fast the disks for swap files are: measured now, and what was measured before. */
#include "machine/disk_report.h"

#include "core/swap.h"
#include "core/thread.h"
#include "machine/recall.h"

/* That a request may take: as timeout_seconds of a run that does not say it. */
#define DEADLINE_SECONDS 60

static double giga(const sl_machine *m, sl_link link)
{
    return m->link_bytes_per_second[link] * 1e-9;
}

static void print_disk(const char *folders, const sl_machine *m, FILE *out)
{
    double read = giga(m, SL_LINK_DISK_READ), write = giga(m, SL_LINK_DISK_WRITE);
    fprintf(out, "disk: %s\n", folders);
    fprintf(out, "  alone                reads %.2f GB/s, writes %.2f GB/s\n", read, write);
    fprintf(out, "  both at once         reads %.2f GB/s, writes %.2f GB/s\n", read / (1 + m->disk_read_slowdown),
            write / (1 + m->disk_write_slowdown));
    fprintf(out, "  processor            %.2f of one, for requests and checksums\n", m->disk_processor);
}

static void print_known(void *user, const sl_machine_description *d)
{
    FILE *out = user;
    print_disk(d->disk_folders, &d->rates, out);
    fprintf(out, "  measured before, for %d rank%s; sluice devices --measure FOLDER measures anew\n", d->ranks,
            d->ranks == 1 ? "" : "s at once");
}

void sl_print_known_disks(FILE *out)
{
    sl_recall_list_disks(print_known, out);
}

sluice_status sluice_disks(const char *path, FILE *out)
{
    char text[SL_SWAP_FOLDERS_BYTES], file[PATH_MAX];
    const char *folders[SL_SWAP_MAX_FOLDERS];
    sl_machine rates;
    SL_NEED(out);
    if (path == NULL) {
        sl_print_known_disks(out);
        return SLUICE_OK;
    }
    const sl_disk_set s = { folders, sl_swap_folders(path, text, sizeof text, folders), 1, DEADLINE_SECONDS };
    sl_machine_default(&rates);
    double start = sl_now();
    SL_TRY(sl_machine_measure_disk(&s, &rates, file));
    print_disk(path, &rates, out);
    fprintf(out, "  measured in          %.1f s%s%s\n", sl_now() - start,
            file[0] != '\0' ? ", kept in " : ", and could not be kept", file);
    return SLUICE_OK;
}
