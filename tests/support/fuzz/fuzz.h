/* fuzz.h: every parser of sluice as a function of bytes, for libFuzzer and for the test that replays the corpus.
 *
 * A target is a row of FUZZ_TARGETS, a function fuzz_NAME in NAME_fuzz.c and a folder corpus/NAME. It feeds the bytes to
 * the parser as the program would get them, and where they are accepted uses everything that was read. A failed
 * FUZZ_CHECK ends the process, which is a finding, as is a sanitizer's report. */
#ifndef SLUICE_TEST_FUZZ_H
#define SLUICE_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sluice.h"

/* clang-format off: a line each */
#define FUZZ_TARGETS(X)                                                                                                \
    X(config)                                                                                                          \
    X(machine)                                                                                                         \
    X(safetensors)                                                                                                     \
    X(manifest)                                                                                                        \
    X(trace)                                                                                                           \
    X(text)                                                                                                            \
    X(tokenizer)                                                                                                       \
    X(tokens)                                                                                                          \
    X(model_config)                                                                                                    \
    X(weights_index)                                                                                                   \
    X(jsonl)                                                                                                           \
    X(prompts)                                                                                                         \
    X(adapter_config)                                                                                                  \
    X(generation_config)                                                                                               \
    X(image_processor)                                                                                                 \
    X(idx)                                                                                                             \
    X(cifar)                                                                                                           \
    X(picture)                                                                                                         \
    X(sound)                                                                                                           \
    X(transcripts)                                                                                                     \
    X(journal)
/* clang-format on */

#define DECLARE_TARGET(name_) void fuzz_##name_(const uint8_t *data, size_t bytes);
FUZZ_TARGETS(DECLARE_TARGET)
#undef DECLARE_TARGET

#define FUZZ_CHECK(cond_)                                                                                              \
    do {                                                                                                               \
        if (!(cond_)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond_);                                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Path of a file of that name with these bytes, in a folder of this process that goes when it ends; valid until the next
 * call. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);
/* The folder. */
const char *fuzz_folder(void);
/* Whether the parser took it. A refusal must say why, in one line that a terminal can show. */
bool fuzz_accepted(sluice_status status);

#endif
