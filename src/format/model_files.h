/* model_files.h: what stands in a model's folder beside its weights: config.json, generation_config.json, the tokenizer's
 * files, and whatever else a publisher put there. */
#ifndef SL_FORMAT_MODEL_FILES_H
#define SL_FORMAT_MODEL_FILES_H

#include "core/arena.h"
#include "core/io.h"
#include "core/log.h"
#include "format/image_processor.h"
#include "format/model_config.h"

/* Larger ones are not carried from folder to folder. */
#define SL_MODEL_FILE_MAX (256 << 20)

typedef struct sl_model_file {
    const char *name;
    const char *from; /* path of the file that it is a copy of; NULL: it is `text` */
    const char *text;
    size_t bytes;
    bool is_held;
    sl_file held; /* `from`, open; where is_held */
} sl_model_file;

typedef struct sl_model_files {
    sl_arena arena; /* of everything here */
    sl_model_file *list;
    int count, capacity;
    const char *prefix; /* of the family's names in files, which those in a graph lack; "": none */
    const sl_log *log;  /* a copy that fails is told as a warning and left out; NULL: it is a failure */
} sl_model_files;

/* What token ids stand for: a tokenizer's tokens, or else units of text. */
typedef struct sl_ids_meaning {
    const char *tokenizer;  /* a folder or a file, as sl_tokenizer_open takes them; NULL: none */
    const char *unit;       /* "bytes", "characters" or "nul+characters" (docs/formats.md); NULL: not known */
    const char *characters; /* UTF-8 */
    const char *over; /* a folder, an adapter's, whose files of a tokenizer take the place of others; NULL: none */
    /* The chat template of conversations; NULL: the folder's, if any. */
    const struct sl_chat_template *chat;
    const char *date,
        *eos; /* that it tells, and that ends its texts where the folder names none; NULL: the usual one, none */
} sl_ids_meaning;

/* What becomes of images before the model reads them, and how many channels they have. */
typedef struct sl_images_meaning {
    sl_image_processor processor;
    int64_t channels;
} sl_images_meaning;

/* The files for the folder of a model `c` that was made from `from`, a model's folder, or from nothing (NULL): config.json
 * as c says, with the keys of from's; all other small files of `from` as they are; without `from` the files of the tokenizer
 * in `ids`, or one that splits text into its units; and generation_config.json where c names ids, or that tokenizer has a
 * token that ends texts. With `images` preprocessor_config.json says that; from's stays where it says the same. ids and
 * images may be NULL. Zero *out first; sl_model_files_free also after a failure. */
sluice_status sl_model_files_make(const sl_model_config *c, const char *from, const sl_ids_meaning *ids,
                                  const sl_images_meaning *images, sl_model_files *out);
/* Those of the tokenizer alone, which stand beside an adapter. `from`: the folder of the model that it adapts; NULL: it has none. */
sluice_status sl_tokenizer_files_make(const sl_model_config *c, const char *from, const sl_ids_meaning *ids,
                                      sl_model_files *out);
void sl_model_files_free(sl_model_files *f);
/* Keeps what is copied open from now on, so that it can be written when the folder is gone; as far as it can be opened, and
 * for SL_MODEL_FILES_HELD files at most. */
#define SL_MODEL_FILES_HELD 64
void sl_model_files_hold(sl_model_files *f);
/* Writes them into a folder that nobody reads yet. */
sluice_status sl_model_files_write(const sl_model_files *f, const char *folder);
/* What names that a graph gives to weights bear in the files of this family. */
const char *sl_decoder_prefix(sl_decoder family);
/* Weights of a folder, in any form: what another folder never gets from it. */
bool sl_is_weights_name(const char *name);
/* A file that says what a model is, or how it is used: those of a former model do not stay in the folder of a new one. */
bool sl_is_model_file_name(const char *name);
/* Either of these. */
bool sl_is_model_member(const char *name);
/* A name that makes a folder a model's; NULL ends the list. */
extern const char *const sl_model_folder_signs[];

#endif
