/* manifest.h: what a checkpoint holds and how to tell that it is whole.
 *
 * manifest.json lists the data files with the XXH3-64 of each 4 MiB chunk, and the tensors with the pieces of files
 * they lie in. A piece is a run of elements of one tensor; at N ranks each rank writes its own file and a tensor has
 * pieces in several. The last line is the XXH3-64 of all bytes before it, so that no change to the text goes unseen. */
#ifndef SL_CHECKPOINT_MANIFEST_H
#define SL_CHECKPOINT_MANIFEST_H

#include "checkpoint/state.h"
#include "core/arena.h"
#include "core/run_names.h"
#include "format/text_buffer.h"

/* Pieces begin at multiples of this in their file, and a file's size is a multiple of SL_FILE_ALIGNMENT for direct
 * writes. */
#define SL_PIECE_ALIGNMENT 64
#define SL_FILE_ALIGNMENT  4096

typedef struct sl_manifest_file {
    const char *name; /* in the checkpoint's folder; no path */
    uint64_t bytes;
    uint64_t *chunks; /* XXH3-64 of each SL_CHECKPOINT_CHUNK bytes */
    int64_t chunk_count;
} sl_manifest_file;

typedef struct sl_manifest_piece {
    int64_t tensor, file;  /* indices */
    uint64_t offset;       /* in the file */
    uint64_t first, count; /* elements of the tensor */
} sl_manifest_piece;

typedef struct sl_manifest {
    sl_arena arena;    /* owns everything below */
    uint64_t checksum; /* of the text it was read from; 0: it was not */
    int64_t format;
    const char *version; /* of the sluice that wrote it */
    sl_checkpoint_meta meta;
    int64_t ranks;                 /* that wrote it */
    sl_kept_vocabulary vocabulary; /* unit NULL: none is kept */
    sl_manifest_file *files;
    int64_t file_count;
    sl_state_tensor *tensors; /* in the order of the saved state */
    int64_t tensor_count;
    sl_manifest_piece *pieces; /* by file and offset, not overlapping; those of a tensor cover it exactly once */
    int64_t piece_count;
} sl_manifest;

static inline uint64_t sl_piece_end(const sl_manifest_piece *p)
{
    return p->offset + p->count * sizeof(float);
}

/* Adds the whole manifest with its checksum to the empty `text`. */
void sl_manifest_write(const sl_manifest *m, sl_text *text);
/* Adds the last line: the checksum of everything before it. */
void sl_manifest_seal(sl_text *text);
/* Reads and checks folder/manifest.json. SLUICE_ERR_INPUT: damaged. step not NULL: the step the folder is named for; a
 * manifest of another one is damage too. Of a manifest in a format of another version, only `format` and `version` are
 * set: see sl_manifest_check_format. */
sluice_status sl_manifest_read(const char *folder, const uint64_t *step, sl_manifest **out);
void sl_manifest_free(sl_manifest *m); /* NULL is fine */
/* Pointers to the pieces by tensor and first element; the caller frees them with sl_free. */
sluice_status sl_manifest_sort_pieces(const sl_manifest *m, const sl_manifest_piece ***out);
/* Refuses other formats than this program's, naming both versions. */
sluice_status sl_manifest_check_format(const sl_manifest *m, const char *folder);

#endif
