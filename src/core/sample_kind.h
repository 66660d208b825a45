/* sample_kind.h: what samples are: data sets give them, models read them. */
#ifndef SL_CORE_SAMPLE_KIND_H
#define SL_CORE_SAMPLE_KIND_H

typedef enum {
    SL_SAMPLES_NUMBERS,   /* "x" [features], "target" */
    SL_SAMPLES_IMAGES,    /* "x" [height, width, channels], "target" i32: a class. Models of numbers read them too */
    SL_SAMPLES_TOKENS,    /* "tokens" and "targets" i32 [context], "positions" where documents are packed */
    SL_SAMPLES_SENTENCES, /* "tokens" and "segments" i32 [context], "lengths" i32, "target" i32: a class */
    SL_SAMPLES_CLICKS, /* "x" f32 [numeric], "category.0" i32 and so on, also as "categories" i32 [categorical], "target".
                             Models of numbers read "x" */
    SL_SAMPLES_SPEECH /* "x" f32 [rows, bands], "lengths" i32: frames that a model makes of the rows that count, "labels"
                             i32 [characters] */
} sl_sample_kind;

/* "images", for messages. */
static inline const char *sl_sample_kind_name(sl_sample_kind kind)
{
    static const char *const names[] = { "numbers",         "images", "tokens", "sentences with a class",
                                         "rows of a table", "speech" };
    return names[kind];
}

#endif
