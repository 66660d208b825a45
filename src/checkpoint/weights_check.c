/* weights_check.c: compares the names, shapes and types of a file with those of a model.
 *
 * A published file that almost fits is the dangerous one: what is left over is never dropped in silence, and what is missing
 * is never made up, but for adapters and what is said to start anew, which stay as they were. Names come first: of a file of another family they tell more
 * than the first shape that differs. */
#include "checkpoint/weights_check.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/gather.h"
#include "core/alloc.h"
#include "format/weight_names.h"

enum { NAMED = 5, LIST_BYTES = 640 };

bool sl_weight_is_in_parts(const sl_weights_set *f, const sl_state_tensor *t)
{
    return t->part_count > 0 && sl_weights_set_find(f, t->name) == NULL;
}

bool sl_weight_is_left_out(const sl_weights_set *f, const sl_state_tensor *t)
{
    if (t->is_fresh) return true;
    const bool optional = t->is_adapter || sl_state_is_counter(t); /* older files of PyTorch have no counts */
    if (!optional || sl_weights_set_find(f, t->name) != NULL) return false;
    return t->part_count == 0 || sl_weights_set_find(f, t->parts[0].name) == NULL;
}

/* ---- prefixes ---- */

/* A name of the model, or of a part of one of its weights, for which `test` holds; NULL: for none. */
typedef bool (*name_test)(const sl_weights_set *f, const char *name, const sl_weight_prefix *p);
static const char *find_name(const sl_weights_set *f, const sl_state *state, name_test test, const sl_weight_prefix *p)
{
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        if (!sl_state_is_weight(t)) continue;
        if (test(f, t->name, p)) return t->name;
        for (int k = 0; k < t->part_count; k++)
            if (test(f, t->parts[k].name, p)) return t->parts[k].name;
    }
    return NULL;
}

static bool is_there(const sl_weights_set *f, const char *name, const sl_weight_prefix *p)
{
    for (const char *const *o = p->outside; o != NULL && *o != NULL; o++)
        if (strncmp(name, *o, strlen(*o)) == 0) return false; /* a head, which tells nothing of the prefix */
    return sl_weights_set_find(f, name) != NULL;
}

static bool is_there_without(const sl_weights_set *f, const char *name, const sl_weight_prefix *p)
{
    size_t bytes = strlen(p->text);
    return strncmp(name, p->text, bytes) == 0 && sl_weights_set_find(f, name + bytes) != NULL;
}

/* True where none of the model's names is there as it is. */
static bool is_foreign(const sl_weights_set *f, const sl_state *state)
{
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL; p++)
        if (p->outside != NULL && find_name(f, state, is_there, p) != NULL) return false;
    return true;
}

/* Takes what all names have, one prefix inside the other; puts one only where it makes a name of the model. */
static sluice_status try_renaming(sl_weights_set *f, const sl_state *state)
{
    bool renamed = false;
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL && is_foreign(f, state); p++)
        SL_TRY(sl_weights_set_rename(f, p->text, true, p->outside, &renamed));
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL && is_foreign(f, state); p++)
        if (p->outside != NULL && find_name(f, state, is_there_without, p) != NULL)
            SL_TRY(sl_weights_set_rename(f, p->text, false, p->outside, &renamed));
    return SLUICE_OK;
}

sluice_status sl_weights_fit_names(sl_weights_set *f, const sl_state *state)
{
    sl_set_tensor *before = f->tensors;
    SL_TRY(try_renaming(f, state));
    if (is_foreign(f, state)) f->tensors = before; /* so that messages show the names of the file */
    return SLUICE_OK;
}

/* ---- names ---- */

/* Names of a message: the first few, and how many there are. */
typedef struct name_list {
    char text[LIST_BYTES];
    int64_t count;
} name_list;

static void add_name(name_list *list, const char *name)
{
    size_t used = strlen(list->text);
    if (list->count++ < NAMED)
        snprintf(list->text + used, sizeof list->text - used, "%s%s", used > 0 ? ", " : "", sl_quote(name).text);
}

static void end_list(name_list *list)
{
    size_t used = strlen(list->text);
    if (list->count > NAMED)
        snprintf(list->text + used, sizeof list->text - used, " and %" PRId64 " more", list->count - NAMED);
}

/* What is wrong with the names of a file, and what may have led to it. */
typedef struct name_faults {
    const sl_weights_set *f;
    const sl_state *state;
    name_list missing, strange;
    char prefix[32];      /* that one side has before its names and the other has not; "": none */
    bool prefix_is_there; /* on the file's side */
    const char *absence;  /* advice for a tensor that is missing; NULL: none */
} name_faults;

/* Looks for a missing name under the prefixes that programs add or leave out. */
static void try_prefixes(name_faults *n, const char *name)
{
    char longer[SL_MAX_NAME_BYTES + 64];
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL && n->prefix[0] == '\0'; p++) {
        size_t bytes = strlen(p->text);
        bool added = snprintf(longer, sizeof longer, "%s%s", p->text, name) < (int)sizeof longer &&
                     sl_weights_set_find(n->f, longer) != NULL;
        bool left_out = strncmp(name, p->text, bytes) == 0 && sl_weights_set_find(n->f, name + bytes) != NULL;
        if (!added && !left_out) continue;
        snprintf(n->prefix, sizeof n->prefix, "%s", p->text);
        n->prefix_is_there = added;
    }
}

static void add_missing(name_faults *n, const char *name)
{
    const sl_weight_names *known = n->state->names;
    if (sl_weights_set_find(n->f, name) != NULL) return;
    add_name(&n->missing, name);
    try_prefixes(n, name);
    for (const sl_weight_absence *a = known != NULL ? known->absences : NULL; a != NULL && a->name != NULL; a++)
        if (strcmp(a->name, name) == 0) n->absence = a->advice;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names under which the file should hold this model's weights, in byte order; notes those that it does not. */
static int64_t list_expected(name_faults *n, const char **names)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n->state->count; i++) {
        const sl_state_tensor *t = &n->state->tensors[i];
        if (!sl_state_is_in_files(t) || sl_weight_is_left_out(n->f, t)) continue;
        if (!sl_weight_is_in_parts(n->f, t)) names[count++] = t->name;
        for (int k = 0; sl_weight_is_in_parts(n->f, t) && k < t->part_count; k++) names[count++] = t->parts[k].name;
    }
    if (count > 0) qsort((void *)names, (size_t)count, sizeof *names, compare_names);
    for (int64_t i = 0; i < count; i++) add_missing(n, names[i]);
    return count;
}

/* A constant, or the copy of a parameter, whose values are compared later. */
static bool is_harmless(const sl_weight_names *known, const char *name)
{
    if (known == NULL) return false;
    for (const char *const *p = known->buffers; p != NULL && *p != NULL; p++)
        if (fnmatch(*p, name, 0) == 0) return true;
    for (const sl_weight_copy *c = known->copies; c != NULL && c->name != NULL; c++)
        if (strcmp(c->name, name) == 0) return true;
    return false;
}

/* A tensor of the file that is not read, because the model's own starts anew. */
static bool is_replaced(const sl_state *state, const char *name)
{
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        if (!t->is_fresh || !sl_state_is_weight(t)) continue;
        if (strcmp(t->name, name) == 0) return true;
        for (int k = 0; k < t->part_count; k++)
            if (strcmp(t->parts[k].name, name) == 0) return true;
    }
    return false;
}

static void add_strange(name_faults *n, const char **expected, int64_t count)
{
    for (int64_t i = 0; i < n->f->tensor_count; i++) {
        const char *name = n->f->tensors[i].name;
        bool known = count > 0 && bsearch((const void *)&name, (const void *)expected, (size_t)count, sizeof *expected,
                                          compare_names) != NULL;
        if (!known && !is_harmless(n->state->names, name) && !is_replaced(n->state, name)) add_name(&n->strange, name);
    }
}

/* "model-00001-of-00003.safetensors". */
static bool is_shard(const char *path)
{
    return fnmatch("*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors", path, 0) == 0;
}

/* The most likely reason, as a sentence that begins with a space; "" where none is seen. */
static void explain(const name_faults *n, char *out, size_t bytes)
{
    const sl_weight_family *family = sl_weight_family_of(n->f);
    out[0] = '\0';
    if (is_shard(n->f->path))
        snprintf(out, bytes, ". It is one of several files of a model: name their folder, or the index beside them");
    else if (n->absence != NULL && n->missing.count == 1 && n->strange.count == 0)
        snprintf(out, bytes, ": %s", n->absence);
    else if (n->prefix[0] != '\0')
        snprintf(out, bytes, ". Some of its names %s \"%s\" before those of this model, and not all do: rename them",
                 n->prefix_is_there ? "have" : "lack the", n->prefix);
    else if (family != NULL)
        snprintf(out, bytes, ". It looks like %s: %s", family->family, family->advice);
}

static sluice_status refuse_names(name_faults *n)
{
    const name_list *missing = &n->missing, *strange = &n->strange;
    char lacks[LIST_BYTES + 96] = "", holds[LIST_BYTES + 96] = "", reason[400];
    end_list(&n->missing);
    end_list(&n->strange);
    if (missing->count > 0)
        snprintf(lacks, sizeof lacks, "it lacks %" PRId64 " tensor%s of the model: %s", missing->count,
                 missing->count == 1 ? "" : "s", missing->text);
    if (strange->count > 0)
        snprintf(holds, sizeof holds, "%s %" PRId64 " tensor%s the model does not have: %s",
                 missing->count > 0 ? "; it holds" : "it holds", strange->count, strange->count == 1 ? "" : "s",
                 strange->text);
    explain(n, reason, sizeof reason);
    return sl_fail(SLUICE_ERR_INPUT, "%s does not fit this model: %s%s%s", n->f->path, lacks, holds, reason);
}

static sluice_status check_names(const sl_weights_set *f, const sl_state *state)
{
    int64_t most = 1;
    for (int64_t i = 0; i < state->count; i++)
        most += state->tensors[i].part_count > 0 ? state->tensors[i].part_count : 1;
    const char **expected = sl_alloc_array((size_t)most, sizeof *expected, "list of weights");
    if (expected == NULL) return SLUICE_ERR_NO_MEMORY;
    name_faults n = { .f = f, .state = state };
    add_strange(&n, expected, list_expected(&n, expected));
    sl_free((void *)expected);
    return n.missing.count == 0 && n.strange.count == 0 ? SLUICE_OK : refuse_names(&n);
}

/* ---- shapes and types ---- */

static sluice_status refuse_shape(const sl_set_tensor *in, const char *name, const sl_shape *s)
{
    const sl_st_tensor *found = in->stored;
    char have[128], want[128];
    sl_shape shape = { .rank = found->rank < SL_MAX_RANK ? found->rank : SL_MAX_RANK };
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = found->dim[i];
    return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s has the shape %s%s, this model's has %s%s", in->file->file.path,
                   sl_quote(name).text, sl_shape_text(&shape, have, sizeof have),
                   found->rank > SL_MAX_RANK ? "..." : "", sl_shape_text(s, want, sizeof want),
                   sl_weight_is_head(name) ? "; a head that is to be trained anew is named in new_parameters" : "");
}

static sluice_status check_tensor(const sl_weights_set *f, const char *name, const sl_shape *shape)
{
    const sl_set_tensor *in = sl_weights_set_find(f, name);
    if (in == NULL) return SLUICE_OK; /* a copy that the file has not */
    const sl_st_tensor *found = in->stored;
    if (found->rank != shape->rank || memcmp(found->dim, shape->dim, (size_t)found->rank * sizeof found->dim[0]) != 0)
        return refuse_shape(in, name, shape);
    if (!sl_st_is_float(found->dtype))
        return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s has dtype %s; weights are F32, F16, BF16 or F64",
                       in->file->file.path, sl_quote(name).text, sl_st_dtype_name(found->dtype));
    return SLUICE_OK;
}

/* Nothing that was ever trained counts so far; two floats hold it exactly. */
#define MOST_COUNT ((int64_t)1 << 48)

sluice_status sl_weights_read_count(const sl_weights_set *f, const char *name, uint64_t *out)
{
    const sl_set_tensor *in = sl_weights_set_find(f, name);
    const sl_st_tensor *found = in->stored;
    int64_t count;
    if (sl_st_elements(found) != 1 || found->dtype != SL_ST_I64)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: tensor %s must be one number of dtype I64; it has %" PRId64 " of dtype %s",
                       in->file->file.path, sl_quote(name).text, sl_st_elements(found), sl_st_dtype_name(found->dtype));
    SL_TRY(sl_st_read(in->file, found, 0, 1, &count));
    if (count < 0 || count >= MOST_COUNT)
        return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s counts %" PRId64 " micro-batches", in->file->file.path,
                       sl_quote(name).text, count);
    *out = (uint64_t)count;
    return SLUICE_OK;
}

static sluice_status check_weight(const sl_weights_set *f, const sl_state_tensor *t)
{
    if (sl_weight_is_left_out(f, t)) return SLUICE_OK;
    if (sl_state_is_counter(t)) return sl_weights_read_count(f, t->name, &(uint64_t){ 0 });
    if (!sl_weight_is_in_parts(f, t)) return check_tensor(f, t->name, &t->shape);
    for (int i = 0; i < t->part_count; i++) {
        sl_shape shape = t->shape;
        shape.dim[0] = t->parts[i].rows;
        SL_TRY(check_tensor(f, t->parts[i].name, &shape));
    }
    return SLUICE_OK;
}

/* A copy has the shape of what it repeats. */
static sluice_status check_copies(const sl_weights_set *f, const sl_state *state, const sl_state_tensor *t)
{
    const sl_weight_copy *copies = state->names != NULL ? state->names->copies : NULL;
    for (const sl_weight_copy *c = copies; c != NULL && c->name != NULL; c++)
        if (strcmp(c->of, t->name) == 0) SL_TRY(check_tensor(f, c->name, &t->shape));
    return SLUICE_OK;
}

sluice_status sl_weights_check(const sl_weights_set *f, const sl_state *state)
{
    SL_TRY(check_names(f, state));
    for (int64_t i = 0; i < state->count; i++) {
        if (!sl_state_is_in_files(&state->tensors[i])) continue;
        SL_TRY(check_weight(f, &state->tensors[i]));
        SL_TRY(check_copies(f, state, &state->tensors[i]));
    }
    return SLUICE_OK;
}

/* ---- values of copies ---- */

sluice_status sl_copies_walk_next(void *walk, bool *done)
{
    enum { HALF = SL_CHECKPOINT_CHUNK / sizeof(float) / 2 };
    sl_copies_walk *w = walk;
    const sl_weight_copy *copies = w->state->names != NULL ? w->state->names->copies : NULL;
    *done = copies == NULL || copies[w->copy].name == NULL;
    if (*done) return SLUICE_OK;
    const sl_weight_copy *c = &copies[w->copy];
    const sl_set_tensor *copy = sl_weights_set_find(w->f, c->name), *of = sl_weights_set_find(w->f, c->of);
    int64_t elements = copy != NULL && of != NULL ? sl_st_elements(of->stored) : 0;
    int64_t first = (int64_t)(w->chunk * (uint64_t)w->state->rank_count + (uint64_t)w->state->rank) * HALF;
    if (first >= elements) {
        w->copy++;
        w->chunk = 0;
        return SLUICE_OK;
    }
    int64_t count = elements - first < HALF ? elements - first : HALF;
    w->chunk++;
    SL_TRY(sl_set_read_f32(copy, first, count, w->buffer));
    SL_TRY(sl_set_read_f32(of, first, count, w->buffer + HALF));
    if (memcmp(w->buffer, w->buffer + HALF, (size_t)count * sizeof(float)) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s differs from %s, which serves as the head of this model: %s",
                   copy->file->file.path, sl_quote(c->name).text, sl_quote(c->of).text, c->otherwise);
}
