/* config_words.h: settings of a configuration as words of one line. */
#ifndef SLUICE_TEST_CONFIG_WORDS_H
#define SLUICE_TEST_CONFIG_WORDS_H

#include <stdio.h>
#include <string.h>

#include "sluice.h"

/* "a=1 b.c=2": sets each in turn, up to the first that is refused. */
static inline sluice_status config_set_words(sluice_config *c, const char *assignments)
{
    char words[1024];
    sluice_status st = SLUICE_OK;
    snprintf(words, sizeof words, "%s", assignments);
    for (char *save, *word = strtok_r(words, " ", &save); st == SLUICE_OK && word != NULL;
         word = strtok_r(NULL, " ", &save))
        st = sluice_config_set(c, word);
    return st;
}

#endif
