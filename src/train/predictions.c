/* predictions.c: rows of predictions. Columns are written once, for both kinds of file. */
#include "train/predictions.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/quote.h"
#include "format/text_buffer.h"

enum { WRITE_BYTES = 1 << 20 }; /* of text that is kept before it is written */

struct sl_prediction_file {
    sl_metric_shape shape;
    int64_t targets; /* elements of a sample's */
    sl_class_names names;
    bool json;
    bool begun; /* the output is neither finished nor dropped */
    sl_output output;
    uint64_t written;
    sl_text text; /* not written yet */
    int column;   /* of the row at hand */
};

/* ---- cells ---- */

/* Text of a CSV cell; quoted where it must be. */
static void add_csv_text(sl_text *t, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        sl_text_add_bytes(t, text, strlen(text));
        return;
    }
    sl_text_add(t, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"') sl_text_add(t, "\"");
        sl_text_add_bytes(t, text, 1);
    }
    sl_text_add(t, "\"");
}

/* What comes before a value. */
static void begin_cell(sl_prediction_file *f, const char *name)
{
    const char *first = f->json ? "{" : "", *next = f->json ? ", " : ",";
    sl_text_add(&f->text, "%s", f->column++ == 0 ? first : next);
    if (f->json) sl_text_add(&f->text, "\"%s\": ", name);
}

static void add_integer(sl_prediction_file *f, const char *name, int64_t value)
{
    begin_cell(f, name);
    sl_text_add(&f->text, "%" PRId64, value);
}

/* Nine digits tell any two fp32 numbers apart. */
static void add_number(sl_prediction_file *f, double value)
{
    if (f->json && !isfinite(value))
        sl_text_add(&f->text, "null");
    else
        sl_text_add(&f->text, "%.9g", value);
}

static void add_real(sl_prediction_file *f, const char *name, double value)
{
    begin_cell(f, name);
    add_number(f, value);
}

/* Several numbers: columns name_0, name_1 and so on, or an array. */
static void add_reals(sl_prediction_file *f, const char *name, const float *values)
{
    if (f->targets == 1) {
        add_real(f, name, (double)values[0]);
        return;
    }
    if (f->json) begin_cell(f, name);
    for (int64_t i = 0; i < f->targets; i++) {
        if (f->json)
            sl_text_add(&f->text, i == 0 ? "[" : ", ");
        else
            begin_cell(f, name);
        add_number(f, (double)values[i]);
    }
    if (f->json) sl_text_add(&f->text, "]");
}

static void add_name(sl_prediction_file *f, const char *column, int64_t class_index)
{
    if (f->names.name == NULL) return;
    const char *name = class_index >= 0 ? f->names.name(f->names.user, class_index) : NULL;
    begin_cell(f, column);
    if (f->json)
        sl_text_add_string(&f->text, name != NULL ? name : "");
    else
        add_csv_text(&f->text, name != NULL ? name : "");
}

/* ---- rows ---- */

static void add_class_row(sl_prediction_file *f, int64_t index, int64_t target, sl_choice found)
{
    add_integer(f, "index", index);
    add_integer(f, "target", target);
    add_integer(f, "predicted", found.likeliest);
    add_real(f, "probability", found.probability);
    add_name(f, "target_name", target);
    add_name(f, "predicted_name", found.likeliest);
}

static void add_values_row(sl_prediction_file *f, int64_t index, const float *values, const float *targets)
{
    add_integer(f, "index", index);
    add_reals(f, "target", targets);
    add_reals(f, "prediction", values);
}

/* Labels without a name are nothing. */
static void add_words(sl_prediction_file *f, const char *column, sl_transcript t)
{
    sl_text words = { .data = NULL };
    for (int64_t i = 0; i < t.count; i++) {
        const char *name = f->names.name != NULL ? f->names.name(f->names.user, t.labels[i]) : NULL;
        if (name != NULL) sl_text_add_bytes(&words, name, strlen(name));
    }
    sl_text_add_bytes(&words, "", 1);
    begin_cell(f, column);
    if (sl_text_status(&words) != SLUICE_OK)
        f->text.failed = true;
    else if (f->json)
        sl_text_add_string(&f->text, words.data);
    else
        add_csv_text(&f->text, words.data);
    sl_text_free(&words);
}

static sl_choice choose_binary(float logit)
{
    return (sl_choice){ logit > 0, 1 / (1 + exp(-fabs((double)logit))) };
}

static void add_row(sl_prediction_file *f, int64_t index, int64_t i, const float *predictions, const void *targets)
{
    const int32_t *classes = targets;
    const float *values = targets;
    f->column = 0;
    if (f->shape.judged == SL_JUDGED_VALUES)
        add_values_row(f, index, predictions + i * f->targets, values + i * f->targets);
    else if (f->shape.judged == SL_JUDGED_BINARY)
        add_class_row(f, index, values[i] > 0.5F, choose_binary(predictions[i]));
    else
        add_class_row(f, index, classes[i], sl_choose(predictions + i * f->shape.classes, f->shape.classes));
    sl_text_add(&f->text, f->json ? "}\n" : "\n");
}

static void add_header(sl_prediction_file *f)
{
    sl_text_add(&f->text, "index");
    if (f->shape.judged == SL_JUDGED_TRANSCRIPTS) {
        sl_text_add(&f->text, ",target,predicted\n");
        return;
    }
    if (f->shape.judged != SL_JUDGED_VALUES) {
        sl_text_add(&f->text, ",target,predicted,probability%s\n",
                    f->names.name != NULL ? ",target_name,predicted_name" : "");
        return;
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < f->targets; i++) {
            sl_text_add(&f->text, ",%s", k == 0 ? "target" : "prediction");
            if (f->targets > 1) sl_text_add(&f->text, "_%" PRId64, i);
        }
    sl_text_add(&f->text, "\n");
}

/* ---- the file ---- */

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcmp(path + length - tail, ending) == 0;
}

sluice_status sl_prediction_file_check(const char *path)
{
    if (ends_in(path, ".csv") || ends_in(path, ".jsonl")) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "--predictions: %s ends neither in .csv nor in .jsonl, which says what to write",
                   sl_show(path).text);
}

static sluice_status check_shape(const sl_metric_shape *shape, int64_t targets)
{
    bool values = shape->judged == SL_JUDGED_VALUES || shape->judged == SL_JUDGED_TRANSCRIPTS;
    if (values || (targets == 1 && (shape->judged == SL_JUDGED_CLASSES || shape->judged == SL_JUDGED_BINARY)))
        return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_USAGE,
        "--predictions: a sample of this model is a sequence or has several classes; only rows of one class, or of "
        "numbers, are written");
}

static sluice_status write_text(sl_prediction_file *f)
{
    SL_TRY(sl_text_status(&f->text));
    SL_TRY(sl_file_pwrite(&f->output.file, f->text.data, f->text.bytes, f->written));
    f->written += f->text.bytes;
    f->text.bytes = 0;
    return SLUICE_OK;
}

sluice_status sl_prediction_file_begin(const char *path, const sl_metric_shape *shape, int64_t targets,
                                       sl_class_names names, sl_prediction_file **out)
{
    SL_TRY(sl_prediction_file_check(path));
    SL_TRY(check_shape(shape, targets));
    sl_prediction_file *f = sl_alloc(sizeof *f, "predictions");
    if (f == NULL) return SLUICE_ERR_NO_MEMORY;
    f->shape = *shape;
    f->targets = targets;
    f->names = names;
    f->json = ends_in(path, ".jsonl");
    sluice_status st = sl_output_begin(path, &f->output);
    if (st != SLUICE_OK) {
        sl_free(f);
        return st;
    }
    f->begun = true;
    if (!f->json) add_header(f);
    *out = f;
    return SLUICE_OK;
}

sluice_status sl_prediction_file_add(sl_prediction_file *f, int64_t first, int64_t count, const float *predictions,
                                     const void *targets)
{
    for (int64_t i = 0; i < count; i++) {
        add_row(f, first + i, i, predictions, targets);
        if (f->text.bytes >= WRITE_BYTES) SL_TRY(write_text(f));
    }
    return SLUICE_OK;
}

sluice_status sl_prediction_file_add_transcript(sl_prediction_file *f, int64_t index, sl_transcript target,
                                                sl_transcript predicted)
{
    f->column = 0;
    add_integer(f, "index", index);
    add_words(f, "target", target);
    add_words(f, "predicted", predicted);
    sl_text_add(&f->text, f->json ? "}\n" : "\n");
    return f->text.bytes >= WRITE_BYTES ? write_text(f) : sl_text_status(&f->text);
}

sluice_status sl_prediction_file_finish(sl_prediction_file *f)
{
    SL_TRY(write_text(f));
    f->begun = false;
    return sl_output_finish(&f->output);
}

void sl_prediction_file_free(sl_prediction_file *f)
{
    if (f == NULL) return;
    if (f->begun) sl_output_drop(&f->output);
    sl_text_free(&f->text);
    sl_free(f);
}
