/* weight_names.h: names of tensors in the weights files of other programs, all in one place: what such files hold beside a
 * family's parameters, and of which family a file is. */
#ifndef SL_FORMAT_WEIGHT_NAMES_H
#define SL_FORMAT_WEIGHT_NAMES_H

#include "format/weights_set.h"

/* A tensor that files may hold a second time under another name: harmless as long as its values are the same. */
typedef struct sl_weight_copy {
    const char *name, *of;
    const char *otherwise; /* what to do where its values are its own */
} sl_weight_copy;

/* A parameter that files may lack for a reason, and what to do then. */
typedef struct sl_weight_absence {
    const char *name, *advice;
} sl_weight_absence;

/* What files of a family hold beside its parameters, or may lack. A list ends with NULL (a row with a name of NULL); NULL
 * is an empty one. */
typedef struct sl_weight_names {
    const char *const *buffers; /* fnmatch patterns of constants, which are passed over: masks, frequencies */
    const sl_weight_copy *copies;
    const sl_weight_absence *absences;
    const char *prefix; /* before all names but those of heads, which names in a graph lack; NULL: none */
} sl_weight_names;

extern const sl_weight_names sl_gpt2_weight_names;            /* the head is the token embedding */
extern const sl_weight_names sl_gpt2_untied_weight_names;     /* the head is a parameter of its own */
extern const sl_weight_names sl_llama_weight_names;           /* the head is a parameter of its own */
extern const sl_weight_names sl_llama_tied_weight_names;      /* the head is the token embedding */
extern const sl_weight_names sl_bert_weight_names;            /* with the head for masked tokens */
extern const sl_weight_names sl_bert_classifier_weight_names; /* with a classifier */
extern const sl_weight_names sl_vit_weight_names;

/* Which kind of model a file is of, told by its names. */
typedef struct sl_weight_family {
    const char *pattern; /* fnmatch */
    const char *family;  /* "GPT-2" */
    const char *advice;
} sl_weight_family;
/* The first row that one of the tensors fits. NULL: no row does. */
const sl_weight_family *sl_weight_family_of(const sl_weights_set *s);

/* Prefixes that programs put before names, or leave out. A text of NULL ends the list. */
typedef struct sl_weight_prefix {
    const char *text;
    const char *const *outside; /* beginnings of names that never bear it; NULL: all do */
} sl_weight_prefix;
extern const sl_weight_prefix sl_weight_prefixes[];
/* A tensor of a head, which never bears the prefix of the model whose head it is. */
bool sl_weight_is_head(const char *name);

#endif
