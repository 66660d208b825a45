/* adapter_folder.c: writing PEFT's files, into a folder that takes its name when both are whole. */
#include "checkpoint/adapter_folder.h"

#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/gather.h"
#include "checkpoint/rounds.h"
#include "comm/agree.h"
#include "core/alloc.h"
#include "core/output.h"
#include "core/output_folder.h"
#include "format/safetensors.h"

/* Rows of a tensor of the state that are a tensor of the file. */
typedef struct piece {
    const char *name;
    int64_t tensor, first_row, rows;
} piece;

/* A module of the model, by the name that it has in transformers. */
typedef struct module {
    const char *name;
    bool adapted, whole;
} module;

typedef struct adapter_writing {
    const sl_state *state;
    const sl_model_files *others; /* borrowed; NULL: there are none */
    sl_arena arena;               /* of the names */
    piece *pieces;                /* owned */
    int64_t piece_count;
    module *modules; /* owned; that have matrices */
    int64_t module_count;
    sl_folder_output output;
    char path[PATH_MAX]; /* of the weights */
} adapter_writing;

/* ---- names ---- */

/* `name` without its ending, as transformers has it: with the prefix of the family. NULL: out of memory. */
static const char *module_name(adapter_writing *w, const char *name, const char *ending)
{
    char buffer[1024];
    const char *full = sl_state_file_name(w->state, name, buffer, sizeof buffer);
    return sl_arena_printf(&w->arena, "%.*s", (int)(strlen(full) - strlen(ending)), full);
}

static const sl_state_tensor *find_weight(const sl_state *state, const char *name)
{
    for (int64_t i = 0; i < state->count; i++)
        if (sl_state_is_weight(&state->tensors[i]) && strcmp(state->tensors[i].name, name) == 0)
            return &state->tensors[i];
    return NULL;
}

/* ---- pieces ---- */

static sluice_status add_piece(adapter_writing *w, const char *of, const char *ending, int64_t tensor,
                               int64_t first_row, int64_t rows)
{
    const char *name = of != NULL ? sl_arena_printf(&w->arena, SL_PEFT_PREFIX "%s%s", of, ending) : NULL;
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    w->pieces[w->piece_count++] = (piece){ name, tensor, first_row, rows };
    return SLUICE_OK;
}

/* The parts of tensor `i`, whose names end like its own; all of it where it has none. */
static sluice_status add_parts(adapter_writing *w, int64_t i, const char *ending)
{
    const sl_state_tensor *t = &w->state->tensors[i];
    int64_t first = 0;
    if (t->part_count == 0) return add_piece(w, module_name(w, t->name, ending), ending, i, 0, t->shape.dim[0]);
    for (int k = 0; k < t->part_count; first += t->parts[k++].rows)
        SL_TRY(add_piece(w, module_name(w, t->parts[k].name, ending), ending, i, first, t->parts[k].rows));
    return SLUICE_OK;
}

/* One adapter for all parts of `base`: A goes to each, and of B its rows. */
static sluice_status add_shared(adapter_writing *w, int64_t i, const sl_state_tensor *base, const char *ending)
{
    const sl_state_tensor *t = &w->state->tensors[i];
    bool is_a = strcmp(ending, SL_LORA_A) == 0;
    int64_t first = 0;
    for (int k = 0; k < base->part_count; first += base->parts[k++].rows)
        SL_TRY(add_piece(w, module_name(w, base->parts[k].name, SL_MODULE_WEIGHT), ending, i, is_a ? 0 : first,
                         is_a ? t->shape.dim[0] : base->parts[k].rows));
    return SLUICE_OK;
}

static sluice_status add_adapter(adapter_writing *w, int64_t i)
{
    const sl_state_tensor *t = &w->state->tensors[i];
    const char *ending = sl_name_ends_in(t->name, SL_LORA_A) ? SL_LORA_A : SL_LORA_B;
    const char *base_name =
        sl_arena_printf(&w->arena, "%.*s" SL_MODULE_WEIGHT, (int)(strlen(t->name) - strlen(ending)), t->name);
    if (base_name == NULL) return SLUICE_ERR_NO_MEMORY;
    const sl_state_tensor *base = find_weight(w->state, base_name);
    if (t->part_count == 0 && base != NULL && base->part_count > 0) return add_shared(w, i, base, ending);
    return add_parts(w, i, ending);
}

/* ---- modules ---- */

static sluice_status add_module(adapter_writing *w, const char *weight, bool whole)
{
    const char *name = module_name(w, weight, SL_MODULE_WEIGHT);
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    w->modules[w->module_count++] = (module){ name, false, whole };
    return SLUICE_OK;
}

static sluice_status list_modules(adapter_writing *w, const sl_state_tensor *t)
{
    if (!sl_name_ends_in(t->name, SL_MODULE_WEIGHT) || (t->shape.rank != 2 && !t->trained)) return SLUICE_OK;
    if (t->part_count == 0) return add_module(w, t->name, t->trained);
    for (int k = 0; k < t->part_count; k++) SL_TRY(add_module(w, t->parts[k].name, t->trained));
    return SLUICE_OK;
}

static sluice_status list_all(adapter_writing *w)
{
    const sl_state *state = w->state;
    size_t most = (size_t)state->count * SL_MAX_ROW_PARTS + 1;
    w->pieces = sl_alloc_array(most, sizeof *w->pieces, "tensors of adapters");
    w->modules = sl_alloc_array(most, sizeof *w->modules, "modules of a model");
    if (w->pieces == NULL || w->modules == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        if (!sl_state_is_weight(t)) continue;
        if (t->is_adapter) {
            SL_TRY(add_adapter(w, i));
            continue;
        }
        SL_TRY(list_modules(w, t));
        if (t->trained)
            SL_TRY(add_parts(w, i, sl_name_ends_in(t->name, SL_MODULE_WEIGHT) ? SL_MODULE_WEIGHT : ".bias"));
    }
    return SLUICE_OK;
}

/* A module has an adapter where its B is among the pieces. */
static void mark_adapted(adapter_writing *w)
{
    for (int64_t p = 0; p < w->piece_count; p++) {
        const char *name = w->pieces[p].name + strlen(SL_PEFT_PREFIX);
        if (!sl_name_ends_in(name, SL_LORA_B)) continue;
        size_t bytes = strlen(name) - strlen(SL_LORA_B);
        for (int64_t m = 0; m < w->module_count; m++)
            if (strlen(w->modules[m].name) == bytes && memcmp(w->modules[m].name, name, bytes) == 0)
                w->modules[m].adapted = true;
    }
}

static bool is_meant(const module *m, bool whole)
{
    return whole ? m->whole : m->adapted;
}

/* The shortest end of a module's name that no module bears which is not meant as well: PEFT takes the ends of names. */
static const char *shortest_end(const adapter_writing *w, const module *of, bool whole)
{
    const char *end = of->name + strlen(of->name);
    while (end > of->name) {
        while (end > of->name && end[-1] != '.') end--;
        bool alone = true;
        for (int64_t m = 0; alone && m < w->module_count; m++)
            alone = is_meant(&w->modules[m], whole) || !sl_peft_names_module(end, w->modules[m].name);
        if (alone) return end;
        if (end > of->name) end--;
    }
    return of->name;
}

static sluice_status list_ends(adapter_writing *w, bool whole, const char *const **out, int *count)
{
    const char **ends = sl_arena_array(&w->arena, (size_t)w->module_count + 1, sizeof *ends);
    if (ends == NULL) return SLUICE_ERR_NO_MEMORY;
    *count = 0;
    for (int64_t m = 0; m < w->module_count; m++) {
        if (!is_meant(&w->modules[m], whole)) continue;
        const char *end = shortest_end(w, &w->modules[m], whole);
        int k = 0;
        while (k < *count && strcmp(ends[k], end) != 0) k++;
        if (k == *count) ends[(*count)++] = end;
    }
    *out = ends;
    return SLUICE_OK;
}

/* ---- files ---- */

static sluice_status begin_file(const adapter_writing *w, sl_st_writer **out)
{
    const char *metadata[] = { "format", "pt" };
    sl_st_tensor *tensors = sl_alloc_array((size_t)w->piece_count + 1, sizeof *tensors, "list of adapters");
    if (tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < w->piece_count; i++) {
        const piece *p = &w->pieces[i];
        const sl_shape *shape = &w->state->tensors[p->tensor].shape;
        tensors[i] = (sl_st_tensor){ .name = p->name, .dtype = SL_ST_F32, .rank = shape->rank };
        for (int k = 0; k < shape->rank; k++) tensors[i].dim[k] = k == 0 ? p->rows : shape->dim[k];
    }
    sluice_status st = sl_st_write_begin(w->path, tensors, w->piece_count, metadata, 1, out);
    sl_free(tensors);
    return st;
}

static sluice_status write_piece(const adapter_writing *w, sl_gather *g, const piece *p, sl_st_writer *out)
{
    const sl_state_tensor *t = &w->state->tensors[p->tensor];
    uint64_t width = t->elements / (uint64_t)t->shape.dim[0];
    uint64_t first = (uint64_t)p->first_row * width, end = first + (uint64_t)p->rows * width;
    float *chunk = (float *)g->chunk.chunk;
    while (first < end) {
        uint64_t count = end - first < SL_CHUNK_ELEMENTS ? end - first : SL_CHUNK_ELEMENTS;
        SL_TRY(sl_gather_read(g, p->tensor, first, count, chunk));
        SL_TRY(sl_st_write_data(out, chunk, count * sizeof(float)));
        first += count;
    }
    return SLUICE_OK;
}

/* Rank 0. */
static sluice_status write_weights(const adapter_writing *w, sl_gather *g, sl_st_writer **out)
{
    sl_st_writer *file = NULL;
    SL_TRY(begin_file(w, &file));
    sluice_status st = SLUICE_OK;
    for (int64_t i = 0; st == SLUICE_OK && i < w->piece_count; i++) st = write_piece(w, g, &w->pieces[i], file);
    if (st == SLUICE_OK)
        *out = file;
    else
        sl_st_write_abort(file);
    return st;
}

static sluice_status prepare(adapter_writing *w, const char *folder, const sl_adapter_config *c, sl_text *text)
{
    sl_adapter_config full = *c;
    SL_TRY(list_all(w));
    mark_adapted(w);
    SL_TRY(sl_folder_output_begin(folder, sl_model_folder_signs, &w->output));
    SL_TRY(sl_folder_output_path(&w->output, SL_ADAPTER_WEIGHTS, w->path));
    SL_TRY(list_ends(w, false, &full.targets, &full.target_count));
    SL_TRY(list_ends(w, true, &full.whole, &full.whole_count));
    return sl_adapter_config_write(&full, text);
}

/* Rank 0, after every rank has said that its values were good. */
typedef struct adapter_finish {
    adapter_writing *w;
    sl_st_writer *file;
    const sl_text *config;
} adapter_finish;

static sluice_status finish(void *user)
{
    adapter_finish *f = user;
    char path[PATH_MAX];
    sluice_status st = sl_st_write_finish(f->file);
    f->file = NULL;
    if (st == SLUICE_OK) st = sl_folder_output_path(&f->w->output, SL_ADAPTER_CONFIG, path);
    if (st == SLUICE_OK) st = sl_file_replace(path, f->config->data, f->config->bytes);
    if (st == SLUICE_OK && f->w->others != NULL) st = sl_model_files_write(f->w->others, f->w->output.claim.temporary);
    if (st != SLUICE_OK) return st;
    return sl_folder_output_finish(&f->w->output, sl_is_model_file_name);
}

static sluice_status write_together(adapter_writing *w, const sl_text *config)
{
    const sl_state *state = w->state;
    adapter_finish f = { w, NULL, config };
    sl_gather g;
    SL_TRY(sl_gather_open(&g, state));
    sluice_status st = state->rank == 0 ? write_weights(w, &g, &f.file) : sl_gather_serve(&g);
    st = sl_gather_close(&g, st);
    if (st == SLUICE_OK) return sl_together(state->comm, "adapter", state->rank == 0 ? finish : NULL, &f);
    sl_st_write_abort(f.file);
    return st;
}

sluice_status sl_state_adapter_save(const sl_state *state, const char *folder, const sl_adapter_config *c,
                                    const sl_model_files *others)
{
    adapter_writing w = { .state = state, .others = others };
    sl_text config = { .data = NULL };
    sl_arena_init(&w.arena, "names of adapters");
    sluice_status st = state->rank == 0 ? prepare(&w, folder, c, &config) : SLUICE_OK;
    st = sl_agree(state->comm, "adapter", st);
    if (st == SLUICE_OK) st = write_together(&w, &config);
    if (st != SLUICE_OK) sl_folder_output_drop(&w.output);
    sl_text_free(&config);
    sl_free(w.pieces);
    sl_free(w.modules);
    sl_arena_free(&w.arena);
    return st;
}
