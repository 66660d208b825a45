/* model_folder.c: see model_folder.h. */
#include "checkpoint/model_folder.h"

#include "checkpoint/rounds.h"
#include "format/weights_set.h"

sluice_status sl_folder_writing_begin(sl_folder_writing *w, const char *path, const sl_state *state,
                                      uint64_t shard_bytes, const sl_model_files *others)
{
    *w = (sl_folder_writing){ .others = others };
    SL_TRY(sl_folder_output_begin(path, sl_model_folder_signs, &w->output));
    sluice_status st = sl_folder_output_path(&w->output, SL_WEIGHTS_FILE, w->path);
    if (st == SLUICE_OK)
        sl_weights_files_plan(&w->weights, state, w->path, shard_bytes);
    else
        sl_folder_output_drop(&w->output);
    return st;
}

void sl_folder_writing_abort(sl_folder_writing *w)
{
    sl_weights_files_abort(&w->weights);
    sl_folder_output_drop(&w->output);
}

sluice_status sl_folder_writing_finish(void *writing)
{
    sl_folder_writing *w = writing;
    sluice_status st = sl_weights_files_finish(&w->weights);
    if (st == SLUICE_OK) st = sl_model_files_write(w->others, w->output.claim.temporary);
    if (st == SLUICE_OK) return sl_folder_output_finish(&w->output, sl_is_model_file_name);
    sl_folder_output_drop(&w->output);
    return st;
}

static sluice_status write_folder(sl_folder_writing *w, sl_gather *g, const char *path, uint64_t shard_bytes,
                                  const sl_model_files *others)
{
    SL_TRY(sl_folder_writing_begin(w, path, g->state, shard_bytes, others));
    return sl_weights_files_write(&w->weights, g);
}

/* The folder gets its name only after every rank has said that its values were good. */
sluice_status sl_state_folder_save(const sl_state *state, const char *path, uint64_t shard_bytes,
                                   const sl_model_files *others)
{
    sl_gather g;
    sl_folder_writing w = { .others = others };
    bool first = state->rank == 0;
    SL_TRY(sl_gather_open(&g, state));
    sluice_status st = first ? write_folder(&w, &g, path, shard_bytes, others) : sl_gather_serve(&g);
    st = sl_gather_close(&g, st);
    if (st == SLUICE_OK) return sl_together(state->comm, "weights", first ? sl_folder_writing_finish : NULL, &w);
    sl_folder_writing_abort(&w);
    return st;
}
