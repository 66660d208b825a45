/* crash_model.c: see crash_model.h. */
#include "support/crash_model.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fault_program.h"

typedef struct entry {
    char name[64];
    int node; /* -1: removed */
} entry;

/* name (a node of its own, or none any more) and what it is called afterwards; "" where it is not renamed */
typedef struct change {
    char name[64], to[64];
    int node; /* -1: removed */
} change;

typedef struct image {
    uint8_t *bytes;
    size_t length;
} image;

/* A file or a folder: as it is, and as the disk is sure to have it. */
typedef struct node {
    bool folder;
    image now, safe;
    entry *entries, *safe_entries;
    int entry_count, safe_count;
    change *changes; /* since the last sync */
    int change_count;
} node;

typedef struct descriptor {
    int pid, fd, node;
    char name[64];
} descriptor;

struct crash_model {
    node *nodes; /* 0 is the top */
    int node_count;
    descriptor *open;
    int open_count;
    char error[512];
};

static bool fail(crash_model *m, const char *what, const char *path)
{
    snprintf(m->error, sizeof m->error, "%s: %.400s", what, path);
    return false;
}

static void *grown(void *array, size_t count, size_t each)
{
    void *p = realloc(array, count * each);
    if (p == NULL) abort();
    return p;
}

/* ---- folders ---- */

static int find(const entry *entries, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(entries[i].name, name) == 0) return i;
    return -1;
}

static void take_out(entry *entries, int *count, const char *name)
{
    int at = find(entries, *count, name);
    if (at >= 0) entries[at] = entries[--*count];
}

static void put_in(entry **entries, int *count, const char *name, int object)
{
    take_out(*entries, count, name);
    *entries = grown(*entries, (size_t)*count + 1, sizeof **entries);
    snprintf((*entries)[*count].name, sizeof(*entries)[0].name, "%s", name);
    (*entries)[(*count)++].node = object;
}

static void make_change(const change *c, entry **entries, int *count)
{
    bool renamed = c->to[0] != '\0';
    if (renamed || c->node < 0) take_out(*entries, count, c->name);
    if (c->node >= 0) put_in(entries, count, renamed ? c->to : c->name, c->node);
}

static void change_folder(crash_model *m, int folder, const char *name, const char *to, int object)
{
    node *n = &m->nodes[folder];
    change c = { .node = object };
    snprintf(c.name, sizeof c.name, "%s", name);
    snprintf(c.to, sizeof c.to, "%s", to);
    n->changes = grown(n->changes, (size_t)n->change_count + 1, sizeof *n->changes);
    n->changes[n->change_count++] = c;
    make_change(&c, &n->entries, &n->entry_count);
}

static int new_node(crash_model *m, bool folder)
{
    m->nodes = grown(m->nodes, (size_t)m->node_count + 1, sizeof *m->nodes);
    m->nodes[m->node_count] = (node){ .folder = folder };
    return m->node_count++;
}

/* The folder a path ends in and the last part of the path, "." for the top itself; false where there is no such folder.
 * "a/.." is the top. */
static bool resolve(crash_model *m, const char *path, int *folder, char last[64])
{
    char text[512], *save = NULL;
    int chain[16] = { 0 }, depth = 0; /* folders from the top to the one at hand */
    snprintf(text, sizeof text, "%s", path);
    strcpy(last, ".");
    for (char *part = strtok_r(text, "/", &save); part != NULL; part = strtok_r(NULL, "/", &save)) {
        if (strcmp(part, ".") == 0) continue;
        if (strcmp(last, ".") != 0) { /* what was last is a folder on the way */
            const node *n = &m->nodes[chain[depth]];
            int at = find(n->entries, n->entry_count, last);
            if (at < 0 || depth == 15) return fail(m, "no such folder", path);
            chain[++depth] = n->entries[at].node;
            strcpy(last, ".");
        }
        if (strcmp(part, "..") != 0)
            snprintf(last, 64, "%s", part);
        else if (depth > 0)
            depth--;
    }
    *folder = chain[depth];
    return true;
}

static int lookup(const crash_model *m, int folder, const char *name)
{
    const node *n = &m->nodes[folder];
    if (strcmp(name, ".") == 0) return folder;
    int at = find(n->entries, n->entry_count, name);
    return at >= 0 ? n->entries[at].node : -1;
}

/* ---- files ---- */

static void resize(image *i, size_t length)
{
    if (length == i->length) return;
    i->bytes = grown(i->bytes, length > 0 ? length : 1, 1);
    if (length > i->length) memset(i->bytes + i->length, 0, length - i->length);
    i->length = length;
}

static void copy_image(image *to, const image *from)
{
    resize(to, from->length);
    if (from->length > 0) memcpy(to->bytes, from->bytes, from->length);
}

static void sync_node(node *n)
{
    copy_image(&n->safe, &n->now);
    for (int i = 0; i < n->change_count; i++) make_change(&n->changes[i], &n->safe_entries, &n->safe_count);
    n->change_count = 0;
}

/* ---- records ---- */

static descriptor *descriptor_of(const crash_model *m, int pid, int fd)
{
    for (int i = 0; i < m->open_count; i++)
        if (m->open[i].pid == pid && m->open[i].fd == fd) return &m->open[i];
    return NULL;
}

static bool apply_open(crash_model *m, const file_log_record *r, const char *path)
{
    char last[64];
    int folder, object;
    if (!resolve(m, path, &folder, last)) {
        m->error[0] = '\0'; /* read only, and there before the log began */
        return true;
    }
    object = lookup(m, folder, last);
    if (object < 0 && (r->flags & O_CREAT) == 0) return true;
    if (object < 0) {
        object = new_node(m, false);
        change_folder(m, folder, last, "", object);
    } else if ((r->flags & O_TRUNC) != 0) {
        resize(&m->nodes[object].now, 0);
    }
    m->open = grown(m->open, (size_t)m->open_count + 1, sizeof *m->open);
    m->open[m->open_count] = (descriptor){ r->pid, r->fd, object, "" };
    strcpy(m->open[m->open_count++].name, object == 0 ? "." : last);
    return true;
}

static bool apply_to_descriptor(crash_model *m, const file_log_record *r, const uint8_t *data)
{
    descriptor *d = descriptor_of(m, r->pid, r->fd);
    if (d == NULL) return true; /* of a file that was there before */
    node *n = &m->nodes[d->node];
    if (r->kind == FILE_LOG_CLOSE) *d = m->open[--m->open_count];
    if (r->kind == FILE_LOG_SYNC) sync_node(n);
    if (r->kind == FILE_LOG_TRUNCATE) resize(&n->now, r->offset);
    if (r->kind != FILE_LOG_WRITE) return true;
    if (r->offset + r->data_bytes > n->now.length) resize(&n->now, r->offset + r->data_bytes);
    memcpy(n->now.bytes + r->offset, data, r->data_bytes);
    return true;
}

static bool apply_to_name(crash_model *m, const file_log_record *r, const char *path, const char *to)
{
    char last[64], last_to[64] = "";
    int folder, folder_to;
    if (!resolve(m, path, &folder, last)) return false;
    int object = lookup(m, folder, last);
    if (r->kind == FILE_LOG_MKDIR) object = new_node(m, true);
    if (r->kind == FILE_LOG_RENAME && (!resolve(m, to, &folder_to, last_to) || folder_to != folder))
        return fail(m, "renamed to another folder", path);
    if (object < 0) return fail(m, "no such file", path);
    change_folder(m, folder, last, last_to, r->kind == FILE_LOG_REMOVE ? -1 : object);
    return true;
}

bool crash_apply(crash_model *m, const file_log_record *r, const char *path, const char *to, const uint8_t *data)
{
    switch (r->kind) {
    case FILE_LOG_OPEN:
        return apply_open(m, r, path);
    case FILE_LOG_RENAME:
    case FILE_LOG_REMOVE:
    case FILE_LOG_MKDIR:
        return apply_to_name(m, r, path, to);
    case FILE_LOG_SAID:
        return true;
    default:
        return apply_to_descriptor(m, r, data);
    }
}

const char *crash_name_of(const crash_model *m, int pid, int fd)
{
    const descriptor *d = descriptor_of(m, pid, fd);
    return d != NULL ? d->name : "";
}

crash_model *crash_create(void)
{
    crash_model *m = calloc(1, sizeof *m);
    if (m == NULL) abort();
    new_node(m, true);
    return m;
}

void crash_destroy(crash_model *m)
{
    for (int i = 0; i < m->node_count; i++) {
        node *n = &m->nodes[i];
        void *owned[] = { n->now.bytes, n->safe.bytes, n->entries, n->safe_entries, n->changes };
        for (size_t k = 0; k < sizeof owned / sizeof owned[0]; k++) free(owned[k]);
    }
    free(m->nodes);
    free(m->open);
    free(m);
}

const char *crash_error(const crash_model *m)
{
    return m->error;
}

/* ---- what is left ---- */

static bool happens(int percent, uint64_t *random)
{
    return percent >= 100 || (percent > 0 && (int)next_random(random, 100) < percent);
}

/* A file that nobody synced after its last change. */
static void tear(const node *n, crash_chance chance, uint64_t *random, image *out)
{
    copy_image(out, chance.data >= 100 ? &n->now : &n->safe);
    if (chance.data <= 0 || chance.data >= 100) return;
    if (chance.whole_length || n->now.length < out->length) resize(out, n->now.length);
    for (size_t at = 0; at < n->now.length; at += CRASH_BLOCK) {
        size_t bytes = n->now.length - at < CRASH_BLOCK ? n->now.length - at : CRASH_BLOCK;
        if (!happens(chance.data, random)) continue;
        if (at + bytes > out->length) resize(out, at + bytes);
        memcpy(out->bytes + at, n->now.bytes + at, bytes);
    }
}

static bool write_file(const char *path, const image *i)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return false;
    bool whole = i->length == 0 || write(fd, i->bytes, i->length) == (ssize_t)i->length;
    return close(fd) == 0 && whole;
}

static bool write_node(const crash_model *m, int object, crash_chance chance, uint64_t *random, const char *path);

static bool write_entries(const crash_model *m, const entry *entries, int count, crash_chance chance, uint64_t *random,
                          const char *path)
{
    bool written = mkdir(path, 0700) == 0;
    for (int i = 0; written && i < count; i++) {
        char inner[2048];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i].name);
        written = write_node(m, entries[i].node, chance, random, inner);
    }
    return written;
}

static bool write_folder(const crash_model *m, const node *n, crash_chance chance, uint64_t *random, const char *path)
{
    entry *entries = NULL;
    int count = 0, done = n->change_count;
    for (int i = 0; i < n->safe_count; i++) put_in(&entries, &count, n->safe_entries[i].name, n->safe_entries[i].node);
    if (chance.in_order) done = (int)next_random(random, (uint32_t)n->change_count + 1);
    for (int i = 0; i < done; i++)
        if (chance.in_order || happens(chance.names, random)) make_change(&n->changes[i], &entries, &count);
    bool written = write_entries(m, entries, count, chance, random, path);
    free(entries);
    return written;
}

static bool write_node(const crash_model *m, int object, crash_chance chance, uint64_t *random, const char *path)
{
    const node *n = &m->nodes[object];
    image left = { NULL, 0 };
    if (n->folder) return write_folder(m, n, chance, random, path);
    tear(n, chance, random, &left);
    bool written = write_file(path, &left);
    free(left.bytes);
    return written;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

bool crash_write(const crash_model *m, crash_chance chance, uint64_t *random, const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return write_node(m, 0, chance, random, folder);
}
