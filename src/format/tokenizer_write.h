/* tokenizer_write.h: tokenizer.json for models whose tokens have none yet. */
#ifndef SL_FORMAT_TOKENIZER_WRITE_H
#define SL_FORMAT_TOKENIZER_WRITE_H

#include <stdint.h>

#include "core/status.h"
#include "format/text_buffer.h"

/* A BPE without merges: every byte ("bytes"), or every one of `characters`, UTF-8 in the order of ids, is a token. Of
 * "nul+characters" token 0 is U+0000. */
void sl_tokenizer_write_units(const char *unit, const char *characters, sl_text *out);
/* GPT-2's byte-level BPE of a vocab.json and a merges.txt that sl_tokenizer_open took; `end`: the special token that ends
 * texts, spelt end_content; -1: none. */
sluice_status sl_tokenizer_write_pair(const char *vocab_file, const char *merges_file, int32_t end,
                                      const char *end_content, sl_text *out);

#endif
