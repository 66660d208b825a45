/* safetensors.h: named tensors in a file, strictly read and atomically written.
 *
 * The reader believes nothing: header length, UTF-8, duplicate keys, dtypes, shapes, products and offsets are all
 * checked before a byte of data is used, and data must fill the file exactly, without overlap or hole. */
#ifndef SL_FORMAT_SAFETENSORS_H
#define SL_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/io.h"
#include "core/quote.h"
#include "core/status.h"

#define SL_ST_MAX_RANK    8
#define SL_ST_MAX_HEADER  100000000 /* bytes of JSON */
#define SL_ST_MAX_TENSORS 1000000   /* and as many pairs of metadata */

typedef enum {
    SL_ST_BOOL,
    SL_ST_U8,
    SL_ST_I8,
    SL_ST_F8_E4M3,
    SL_ST_F8_E5M2,
    SL_ST_I16,
    SL_ST_U16,
    SL_ST_F16,
    SL_ST_BF16,
    SL_ST_I32,
    SL_ST_U32,
    SL_ST_F32,
    SL_ST_F64,
    SL_ST_I64,
    SL_ST_U64,
    SL_ST_DTYPE_COUNT
} sl_st_dtype;
const char *sl_st_dtype_name(sl_st_dtype t);
size_t sl_st_dtype_bytes(sl_st_dtype t);
bool sl_st_is_float(sl_st_dtype t); /* sl_st_read_f32 reads it */

typedef struct sl_st_tensor {
    const char *name; /* owned by the file */
    sl_st_dtype dtype;
    int rank;
    int64_t dim[SL_ST_MAX_RANK];
    uint64_t begin, bytes; /* in the data part */
} sl_st_tensor;

typedef struct sl_st_file {
    sl_file file;
    sl_file direct;        /* the same file past the page cache (sl_st_bypass_cache); path NULL: not open */
    uint64_t data_offset;  /* of the data part in the file */
    sl_st_tensor *tensors; /* in the order of their data; empty ones before the one that begins there */
    int64_t tensor_count;
    const sl_st_tensor **by_name; /* the same, in byte order of names */
    char **metadata;              /* key, value, key, value, ... in byte order of keys */
    int64_t metadata_count;       /* pairs */
    char *header;                 /* the header's text; owns all strings above */
} sl_st_file;

sluice_status sl_st_open(const char *path, sl_st_file **out);
void sl_st_close(sl_st_file *f); /* NULL is fine */
const sl_st_tensor *sl_st_find(const sl_st_file *f, const char *name);
int64_t sl_st_elements(const sl_st_tensor *t); /* of a tensor that the reader or the writer accepted */
/* Elements [first, first+count) of a tensor as they are stored. */
sluice_status sl_st_read(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, void *out);
/* The same, F32/F16/BF16/F64 converted to float; F64 rounds to nearest. Other dtypes are SLUICE_ERR_INPUT. */
sluice_status sl_st_read_f32(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, float *out);

/* Large reads, through the page cache or past it. */
typedef enum { SL_ST_THROUGH_CACHE, SL_ST_PAST_CACHE } sl_st_way;
/* Makes a file ready for reads past the cache. Files of a few blocks, and those that cannot be read so, stay as they are: all
 * their reads go through the cache. */
void sl_st_bypass_cache(sl_st_file *f);
/* Whether the cache holds these elements. Only of files that are ready for the other way; of others it is not told: false. */
bool sl_st_is_cached(const sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count);
/* Memory for a block of so many bytes: it begins and ends anywhere. */
#define SL_ST_BLOCK_ROOM(bytes) ((bytes) + (size_t)3 * SL_DIRECT_ALIGNMENT)
/* As sl_st_read, into `room` of SL_ST_BLOCK_ROOM of them; *out is where in it. Any thread. A failure names the tensor. */
sluice_status sl_st_read_block(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, sl_st_way way,
                               void *room, const char **out);
/* Elements as they are stored, of a dtype for which sl_st_is_float holds, at any address, as float. */
void sl_st_to_f32(sl_st_dtype t, const char *in, int64_t count, float *out);

/* Elements [first, first+count), which the tensor has, are about to be read: the disk may begin. */
void sl_st_expect(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count);

/* Writing: declare all tensors, then supply their bytes in that order, in pieces of any size; finish commits
 * (fdatasync, rename, directory fsync) and abort leaves whatever was at `path` as it was. Data starts 64-byte aligned.
 * `begin` and `bytes` of the tensors are the writer's to compute. metadata: key, value, ...; as many pairs as
 * metadata_count. */
typedef struct sl_st_writer sl_st_writer;
sluice_status sl_st_write_begin(const char *path, const sl_st_tensor *tensors, int64_t count,
                                const char *const *metadata, int64_t metadata_count, sl_st_writer **out);
sluice_status sl_st_write_data(sl_st_writer *w, const void *data, size_t bytes);
sluice_status sl_st_write_finish(sl_st_writer *w); /* frees w, also on failure */
void sl_st_write_abort(sl_st_writer *w);           /* NULL is fine */

/* Product of dimensions and size in bytes; false on overflow. For readers and writers alike. */
bool sl_st_size(sl_st_dtype dtype, int rank, const int64_t *dim, uint64_t *bytes);

#endif
