/* auto_axes.c: one row for each setting that an arrangement decides: its key, when it is open, which values are worth a trial,
 * and where in the plan's options it goes. */
#include <inttypes.h>
#include <string.h>

#include "train/auto_search.h"

typedef struct axis_row {
    const char *key, *name; /* name: for people */
    int64_t least, most;    /* values that the key takes */
    bool (*is_open)(const sl_plan_options *o);
    int (*choices)(const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from, int64_t *out);
    void (*apply)(int64_t value, const sluice_graph *g, sl_plan_options *o);
} axis_row;

/* ---- stage ---- */

static bool stage_open(const sl_plan_options *o)
{
    return o->stage < 0;
}

/* The two ends first: where planning is slow, those in between may not be tried. */
static int stage_choices(const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from, int64_t *out)
{
    static const int64_t stages[] = { 0, 3, 1, 2 };
    (void)g, (void)from;
    int count = o->rank_count > 1 ? 4 : 1;
    memcpy(out, stages, (size_t)count * sizeof *out);
    return count;
}

static void stage_apply(int64_t value, const sluice_graph *g, sl_plan_options *o)
{
    (void)g;
    o->stage = (int)value;
}

/* ---- levels ---- */

/* Whoever gives the stage, or says where parameters live, gets what that sends and moves by its formula: a level for each layer.
 * Fewer levels keep more of them from forward to backward. */
static bool levels_open(const sl_plan_options *o)
{
    bool given = o->parameters != SLUICE_PLACE_AUTO || (o->rank_count > 1 && o->stage >= 0);
    return o->levels <= 0 && !given;
}

/* Without a value every layer is a level. */
static int levels_choices(const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from, int64_t *out)
{
    int count = 0;
    (void)g, (void)o;
    if (!from->stages_parameters) return 0;
    for (int levels = from->levels / 2; levels >= 2 && count < 2; levels /= 2) out[count++] = levels;
    return count;
}

static void levels_apply(int64_t value, const sluice_graph *g, sl_plan_options *o)
{
    (void)g;
    o->levels = (int)value;
}

/* ---- prefetching ---- */

static bool prefetch_open(const sl_plan_options *o)
{
    return o->prefetch < 0;
}

static int prefetch_choices(const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from,
                            int64_t *out)
{
    static const int64_t ahead[] = { 2, 4, 0 };
    int count = 0;
    (void)g, (void)o;
    if (!from->stages_parameters && from->placement.layers[SL_SAVING_OFFLOAD] == 0) return 0;
    for (size_t i = 0; i < sizeof ahead / sizeof ahead[0]; i++)
        if (ahead[i] != from->placement.prefetch && ahead[i] < from->levels) out[count++] = ahead[i];
    return count;
}

static void prefetch_apply(int64_t value, const sluice_graph *g, sl_plan_options *o)
{
    (void)g;
    o->prefetch = (int)value;
}

/* ---- buckets ---- */

static bool bucket_open(const sl_plan_options *o)
{
    return o->bucket_bytes == 0;
}

/* Of a gradient on its way: the key counts elements. */
static uint64_t wire_bytes(const sluice_graph *g)
{
    return g->wire == SLUICE_F32 ? 4 : 2;
}

/* Layers that share a collective with buckets of so many bytes. */
static int sharing_layers(const sluice_graph *g, uint64_t bytes)
{
    int count = 0;
    for (int i = 0; i < g->layer_count; i++) {
        uint64_t layer = (uint64_t)g->layers[i].element_count * wire_bytes(g);
        count += layer > 0 && layer < bytes;
    }
    return count;
}

static int bucket_choices(const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from, int64_t *out)
{
    static const uint64_t mebibytes[] = { 8, 64 };
    uint64_t before = SL_BUCKET_BYTES;
    int count = 0;
    (void)from;
    if (o->rank_count == 1) return 0;
    if (sharing_layers(g, SL_BUCKET_BYTES) > 1) out[count++] = 1; /* nothing shares */
    for (size_t i = 0; i < sizeof mebibytes / sizeof mebibytes[0]; i++) {
        uint64_t bytes = mebibytes[i] << 20;
        if (sharing_layers(g, bytes) == sharing_layers(g, before)) continue;
        out[count++] = (int64_t)(bytes / wire_bytes(g));
        before = bytes;
    }
    return count;
}

static void bucket_apply(int64_t value, const sluice_graph *g, sl_plan_options *o)
{
    o->bucket_bytes = (uint64_t)value * wire_bytes(g);
}

/* ---- micro-batch ---- */

/* Another graph: settled before there is one. */
static bool never_open(const sl_plan_options *o)
{
    (void)o;
    return false;
}

static int no_choices(const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from, int64_t *out)
{
    (void)g, (void)o, (void)from, (void)out;
    return 0;
}

static void apply_nothing(int64_t value, const sluice_graph *g, sl_plan_options *o)
{
    (void)value, (void)g, (void)o;
}

static const axis_row rows[SL_AXIS_COUNT] = {
    [SL_AXIS_MICRO_BATCH] = { "train_micro_batch_size_per_gpu", "micro-batch", 1, INT32_MAX, never_open, no_choices,
                              apply_nothing },
    [SL_AXIS_STAGE] = { "zero_optimization.stage", "stage", 0, 3, stage_open, stage_choices, stage_apply },
    [SL_AXIS_LEVELS] = { "memory.levels", "levels", 1, 1000000, levels_open, levels_choices, levels_apply },
    [SL_AXIS_PREFETCH] = { "memory.prefetch_layers", "prefetch", 0, 1000000, prefetch_open, prefetch_choices,
                           prefetch_apply },
    [SL_AXIS_BUCKET] = { "zero_optimization.reduce_bucket_size", "bucket", 1, (int64_t)1 << 40, bucket_open,
                         bucket_choices, bucket_apply },
};

const char *sl_axis_key(sl_axis axis)
{
    return rows[axis].key;
}

sl_axis sl_axis_find(const char *key)
{
    int axis = 0;
    while (axis < SL_AXIS_COUNT && strcmp(rows[axis].key, key) != 0) axis++;
    return (sl_axis)axis;
}

bool sl_axis_takes(sl_axis axis, int64_t value)
{
    return value >= rows[axis].least && value <= rows[axis].most;
}

bool sl_axis_is_open(sl_axis axis, const sl_plan_options *o)
{
    return rows[axis].is_open(o);
}

int sl_axis_choices(sl_axis axis, const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from,
                    int64_t out[SL_AXIS_CHOICES])
{
    return rows[axis].choices(g, o, from, out);
}

void sl_arrangement_clear(sl_arrangement *a)
{
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) a->values[axis] = SL_AXIS_UNSET;
}

bool sl_arrangement_equal(const sl_arrangement *a, const sl_arrangement *b)
{
    return memcmp(a->values, b->values, sizeof a->values) == 0;
}

void sl_arrangement_apply(const sl_arrangement *a, const sluice_graph *g, sl_plan_options *o)
{
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++)
        if (a->values[axis] != SL_AXIS_UNSET) rows[axis].apply(a->values[axis], g, o);
}

const char *sl_arrangement_describe(const sl_arrangement *a, char *out, size_t bytes)
{
    size_t used = 0;
    snprintf(out, bytes, "as planned");
    for (int axis = 0; axis < SL_AXIS_COUNT && used < bytes; axis++)
        if (a->values[axis] != SL_AXIS_UNSET)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s %" PRId64, used > 0 ? ", " : "", rows[axis].name,
                                     a->values[axis]);
    return out;
}

void sl_arrangement_write(const sl_arrangement *a, sl_text *out)
{
    const char *before = "";
    sl_text_add(out, "{");
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) {
        if (a->values[axis] == SL_AXIS_UNSET) continue;
        sl_text_add(out, "%s\"%s\": %" PRId64, before, rows[axis].key, a->values[axis]);
        before = ", ";
    }
    sl_text_add(out, "}");
}
