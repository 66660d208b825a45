/* weights_set.h: the weights of a model as one list of tensors, whether they lie in one safetensors file or in many.
 *
 * A set is opened from a folder (model.safetensors, or model.safetensors.index.json and its files), from an index, or from a
 * single file. An index is believed only as far as its files agree: each file is inside the index's folder and there, each
 * tensor is in the file that the index names and in no other, and no file holds a tensor that the index does not name. */
#ifndef SL_FORMAT_WEIGHTS_SET_H
#define SL_FORMAT_WEIGHTS_SET_H

#include "core/arena.h"
#include "format/safetensors.h"

#define SL_WEIGHTS_FILE  "model.safetensors"
#define SL_WEIGHTS_INDEX "model.safetensors.index.json"

#define SL_SET_MAX_INDEX 100000000 /* bytes of JSON */
#define SL_SET_MAX_FILES 10000

typedef struct sl_set_tensor {
    const char *name; /* by which it is found: the stored one, or what sl_weights_set_rename made of it */
    sl_st_file *file;
    const sl_st_tensor *stored;
} sl_set_tensor;

typedef struct sl_weights_set {
    sl_arena arena;    /* of the strings, the index's text and the names that were made */
    const char *path;  /* as it was given; for messages */
    const char *index; /* the index that named the files; NULL: there is one file, without an index */
    sl_st_file **files;
    int64_t file_count;
    sl_set_tensor *tensors; /* in byte order of names */
    int64_t tensor_count;
} sl_weights_set;

/* SLUICE_ERR_INPUT names the file and, where there is one, the tensor. Where a folder has both, model.safetensors is read. */
sluice_status sl_weights_set_open(const char *path, sl_weights_set **out);
void sl_weights_set_close(sl_weights_set *s); /* NULL is fine */
const sl_set_tensor *sl_weights_set_find(const sl_weights_set *s, const char *name);
/* The value of a key in the metadata of the first file that has it; NULL: none has. */
const char *sl_weights_set_metadata(const sl_weights_set *s, const char *key);
/* Elements [first, first+count) of a tensor as float (sl_st_read_f32). Any thread. */
sluice_status sl_set_read_f32(const sl_set_tensor *t, int64_t first, int64_t count, float *out);

/* Takes `prefix` from the front of every name, or puts it there; names that begin with one of `outside` (a list that NULL
 * ends; NULL: none) keep theirs. False, with nothing changed: to take it, one of the other names lacks it; to put it, one
 * has it; or there is no other name, or two would be the same. *out is only set where memory does not run out. */
sluice_status sl_weights_set_rename(sl_weights_set *s, const char *prefix, bool take, const char *const *outside,
                                    bool *out);

/* Whether a folder holds weights that sl_weights_set_open looks for; false for anything but a folder. */
bool sl_is_weights_folder(const char *path);

#endif
