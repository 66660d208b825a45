/* config_words.h: a configuration with settings given as words of one line. */
#ifndef SLUICE_TEST_CONFIG_WORDS_H
#define SLUICE_TEST_CONFIG_WORDS_H

#include <stdio.h>
#include <string.h>

#include "sluice.h"

/* The configuration of a file with "a=1 b.c=2" set in turn; nothing where one is refused. */
static inline sluice_status config_load_words(const char *path, const char *assignments, sluice_config **out)
{
    char words[4096];
    sluice_config *c;
    sluice_status st = sluice_config_load(path, &c);
    if (st != SLUICE_OK) return st;
    snprintf(words, sizeof words, "%s", assignments);
    for (char *save, *word = strtok_r(words, " ", &save); st == SLUICE_OK && word != NULL;
         word = strtok_r(NULL, " ", &save))
        st = sluice_config_set(c, word);
    if (st == SLUICE_OK)
        *out = c;
    else
        sluice_config_destroy(c);
    return st;
}

#endif
