/* inspect.c: what is in a file or a checkpoint, and whether it is whole. For people, and as one JSON object a line. */
#include <inttypes.h>
#include <string.h>

#include "checkpoint/checkpoint_verify.h"
#include "checkpoint/folder.h"
#include "checkpoint/inspect_model.h"
#include "checkpoint/manifest.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "format/json.h"
#include "format/tokenizer.h"
#include "format/weights_set.h"

typedef enum { PATH_WEIGHTS, PATH_CHECKPOINT, PATH_FOLDER } path_kind;

static bool is_tokenizer(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, "tokenizer.json") == 0;
}

static sluice_status inspect_tokenizer(const char *path, bool json, FILE *out)
{
    sl_tokenizer *t;
    SL_TRY(sl_tokenizer_open(path, &t));
    sl_tokenizer_describe(t, json, out);
    sl_tokenizer_close(t);
    return SLUICE_OK;
}

static bool has_checkpoints(const char *folder)
{
    uint64_t newest = 0;
    return sl_checkpoint_newest(folder, &newest) == SLUICE_OK && newest > 0;
}

/* A folder may hold both checkpoints and weights: it is the checkpoints' then. */
static path_kind kind_of(const char *path)
{
    if (sl_has_manifest(path)) return PATH_CHECKPOINT;
    if (!sl_is_folder(path)) return PATH_WEIGHTS;
    if (!sl_is_weights_folder(path)) return PATH_FOLDER;
    return has_checkpoints(path) ? PATH_FOLDER : PATH_WEIGHTS;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_shape(FILE *out, int rank, const int64_t *dim)
{
    fputc('[', out);
    for (int i = 0; i < rank; i++) fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", dim[i]);
    fputc(']', out);
}

static void print_json_member(FILE *out, const char *key, const char *value)
{
    fprintf(out, "\"%s\": ", key);
    sl_json_write_string(out, value);
}

/* ---- safetensors ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void print_file_json(const sl_st_file *f, const char *path, FILE *out)
{
    fputs("{\"type\": \"safetensors\", ", out);
    print_json_member(out, "path", path);
    fputs(", \"metadata\": {", out);
    for (int64_t i = 0; i < f->metadata_count; i++) {
        if (i > 0) fputs(", ", out);
        sl_json_write_string(out, f->metadata[2 * i]);
        fputs(": ", out);
        sl_json_write_string(out, f->metadata[2 * i + 1]);
    }
    fputs("}, \"tensors\": [", out);
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const sl_st_tensor *t = f->by_name[i];
        fputs(i > 0 ? ", {" : "{", out);
        print_json_member(out, "name", t->name);
        fprintf(out, ", \"dtype\": \"%s\", \"shape\": ", sl_st_dtype_name(t->dtype));
        print_shape(out, t->rank, t->dim);
        fprintf(out, ", \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", f->data_offset + t->begin, t->bytes);
    }
    fputs("]}\n", out);
}

static void print_file_text(const sl_st_file *f, const char *path, FILE *out)
{
    int64_t elements = 0;
    uint64_t bytes = 0;
    char size[32];
    for (int64_t i = 0; i < f->tensor_count; i++) {
        elements += sl_st_elements(&f->tensors[i]);
        bytes += f->tensors[i].bytes;
    }
    fprintf(out, "%s: safetensors, %" PRId64 " tensor%s, %" PRId64 " element%s, %s\n", path, f->tensor_count,
            plural(f->tensor_count), elements, plural(elements), sl_format_bytes(bytes, size, sizeof size));
    for (int64_t i = 0; i < f->metadata_count; i++)
        fprintf(out, "  %s = %s\n", sl_quote(f->metadata[2 * i]).text, sl_quote(f->metadata[2 * i + 1]).text);
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const sl_st_tensor *t = f->by_name[i];
        fprintf(out, "  %-8s %s ", sl_st_dtype_name(t->dtype), sl_quote(t->name).text);
        print_shape(out, t->rank, t->dim);
        fputc('\n', out);
    }
}

/* ---- weights in the files of an index ---- */

static void print_set_json(const sl_weights_set *s, FILE *out)
{
    fputs("{\"type\": \"weights\", ", out);
    print_json_member(out, "path", s->path);
    fputs(", \"files\": [", out);
    for (int64_t i = 0; i < s->file_count; i++) {
        if (i > 0) fputs(", ", out);
        sl_json_write_string(out, last_name(s->files[i]->file.path));
    }
    fputs("], \"tensors\": [", out);
    for (int64_t i = 0; i < s->tensor_count; i++) {
        const sl_set_tensor *t = &s->tensors[i];
        fputs(i > 0 ? ", {" : "{", out);
        print_json_member(out, "name", t->name);
        fprintf(out, ", \"dtype\": \"%s\", \"shape\": ", sl_st_dtype_name(t->stored->dtype));
        print_shape(out, t->stored->rank, t->stored->dim);
        fputs(", ", out);
        print_json_member(out, "file", last_name(t->file->file.path));
        fprintf(out, ", \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", t->file->data_offset + t->stored->begin,
                t->stored->bytes);
    }
    fputs("]}\n", out);
}

static void print_set_text(const sl_weights_set *s, FILE *out)
{
    int64_t elements = 0;
    uint64_t bytes = 0;
    char size[32];
    for (int64_t i = 0; i < s->tensor_count; i++) {
        elements += sl_st_elements(s->tensors[i].stored);
        bytes += s->tensors[i].stored->bytes;
    }
    fprintf(out, "%s: safetensors, %" PRId64 " file%s, %" PRId64 " tensor%s, %" PRId64 " element%s, %s\n", s->path,
            s->file_count, plural(s->file_count), s->tensor_count, plural(s->tensor_count), elements, plural(elements),
            sl_format_bytes(bytes, size, sizeof size));
    for (int64_t i = 0; i < s->tensor_count; i++) {
        const sl_set_tensor *t = &s->tensors[i];
        fprintf(out, "  %-8s %s ", sl_st_dtype_name(t->stored->dtype), sl_quote(t->name).text);
        print_shape(out, t->stored->rank, t->stored->dim);
        fprintf(out, " %s\n", sl_show(last_name(t->file->file.path)).text);
    }
}

static sluice_status inspect_weights(const char *path, bool json, FILE *out)
{
    sl_weights_set *s;
    SL_TRY(sl_weights_set_open(path, &s));
    if (s->index != NULL)
        (json ? print_set_json : print_set_text)(s, out);
    else
        (json ? print_file_json : print_file_text)(s->files[0], s->files[0]->file.path, out);
    sl_weights_set_close(s);
    return SLUICE_OK;
}

/* NaNs and infinities: an exponent of ones. Counted on the bits, so that no conversion adds any. */
static int64_t count_nonfinite(sl_st_dtype dtype, const char *data, int64_t count)
{
    static const uint64_t masks[SL_ST_DTYPE_COUNT] = {
        [SL_ST_F16] = 0x7c00, [SL_ST_BF16] = 0x7f80, [SL_ST_F32] = 0x7f800000, [SL_ST_F64] = 0x7ff0000000000000
    };
    size_t each = sl_st_dtype_bytes(dtype);
    int64_t found = 0;
    for (int64_t i = 0; masks[dtype] != 0 && i < count; i++) {
        uint64_t bits = 0;
        memcpy(&bits, data + (size_t)i * each, each);
        found += (bits & masks[dtype]) == masks[dtype];
    }
    return found;
}

static sluice_status verify_tensor(sl_st_file *f, const sl_st_tensor *t, char *buffer, int64_t *nonfinite)
{
    int64_t elements = sl_st_elements(t), most = (int64_t)(SL_CHECKPOINT_CHUNK / sl_st_dtype_bytes(t->dtype));
    *nonfinite = 0;
    for (int64_t done = 0; done < elements;) {
        int64_t count = elements - done < most ? elements - done : most;
        SL_TRY(sl_st_read(f, t, done, count, buffer));
        *nonfinite += count_nonfinite(t->dtype, buffer, count);
        done += count;
    }
    return SLUICE_OK;
}

static sluice_status verify_tensors(sl_st_file *f, char *buffer, FILE *out)
{
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const sl_st_tensor *t = f->by_name[i];
        int64_t nonfinite;
        SL_TRY(verify_tensor(f, t, buffer, &nonfinite));
        if (nonfinite > 0)
            fprintf(out, "%s: note: tensor %s holds %" PRId64 " NaN or infinite value%s\n", f->file.path,
                    sl_quote(t->name).text, nonfinite, plural(nonfinite));
    }
    fprintf(out,
            "%s: ok: %" PRId64 " tensor%s; the format carries no checksums, structure and readability were checked\n",
            f->file.path, f->tensor_count, plural(f->tensor_count));
    return SLUICE_OK;
}

static sluice_status verify_weights(const char *path, FILE *out)
{
    sl_weights_set *s;
    SL_TRY(sl_weights_set_open(path, &s));
    char *buffer = sl_alloc(SL_CHECKPOINT_CHUNK, "verification buffer");
    sluice_status st = buffer != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < s->file_count && st == SLUICE_OK; i++) st = verify_tensors(s->files[i], buffer, out);
    if (st == SLUICE_OK && s->index != NULL)
        fprintf(out, "%s: ok: index of %" PRId64 " file%s\n", s->index, s->file_count, plural(s->file_count));
    sl_free(buffer);
    sl_weights_set_close(s);
    return st;
}

/* ---- one checkpoint ---- */

static uint64_t data_bytes(const sl_manifest *m)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < m->file_count; i++) bytes += m->files[i].bytes;
    return bytes;
}

static void print_vocabulary_json(const sl_manifest *m, FILE *out)
{
    if (m->vocabulary.unit == NULL) return;
    fputs(", \"vocabulary\": {", out);
    print_json_member(out, "unit", m->vocabulary.unit);
    if (m->vocabulary.characters != NULL) {
        fputs(", ", out);
        print_json_member(out, "characters", m->vocabulary.characters);
    }
    fputc('}', out);
}

static void print_checkpoint_json(const sl_manifest *m, const char *path, FILE *out)
{
    fputs("{\"type\": \"checkpoint\", ", out);
    print_json_member(out, "path", path);
    fprintf(out, ", \"format\": %" PRId64 ", ", m->format);
    print_json_member(out, "sluice", m->version);
    fprintf(out, ", \"ranks\": %" PRId64 ", \"step\": %" PRIu64 ", \"applied_steps\": %" PRIu64, m->ranks, m->meta.step,
            m->meta.applied_steps);
    fprintf(out, ", \"seed\": \"%" PRIu64 "\", \"data_position\": %" PRIu64 ", \"loss_scale\": ", m->meta.seed,
            m->meta.data_position);
    sl_json_write_double(out, m->meta.loss_scale);
    fputs(", ", out);
    print_json_member(out, "model_sha256", m->meta.model_sha256);
    fputs(", ", out);
    print_json_member(out, "kernels", m->meta.kernels);
    print_vocabulary_json(m, out);
    fprintf(out, ", \"bytes\": %" PRIu64 ", \"tensors\": [", data_bytes(m));
    for (int64_t i = 0; i < m->tensor_count; i++) {
        fputs(i > 0 ? ", {" : "{", out);
        print_json_member(out, "name", m->tensors[i].name);
        fputs(", ", out);
        print_json_member(out, "kind", m->tensors[i].kind);
        fputs(", \"dtype\": \"f32\", \"shape\": ", out);
        print_shape(out, m->tensors[i].shape.rank, m->tensors[i].shape.dim);
        fputc('}', out);
    }
    fputs("]}\n", out);
}

static void print_checkpoint_text(const sl_manifest *m, const char *path, FILE *out)
{
    char size[32];
    fprintf(out, "%s: checkpoint, format %" PRId64 ", written by sluice %s\n", path, m->format, m->version);
    fprintf(out,
            "  step %" PRIu64 " (%" PRIu64 " applied), seed %" PRIu64 ", data position %" PRIu64 ", loss scale %g\n",
            m->meta.step, m->meta.applied_steps, m->meta.seed, m->meta.data_position, m->meta.loss_scale);
    fprintf(out, "  model %s, kernels %s\n", sl_quote(m->meta.model_sha256).text, sl_quote(m->meta.kernels).text);
    if (m->vocabulary.unit != NULL)
        fprintf(out, "  vocabulary %s%s%s\n", sl_quote(m->vocabulary.unit).text,
                m->vocabulary.characters != NULL ? ": " : "",
                m->vocabulary.characters != NULL ? sl_quote(m->vocabulary.characters).text : "");
    fprintf(out, "  %" PRId64 " tensor%s in %" PRId64 " file%s of %" PRId64 " rank%s, %s\n", m->tensor_count,
            plural(m->tensor_count), m->file_count, plural(m->file_count), m->ranks, plural(m->ranks),
            sl_format_bytes(data_bytes(m), size, sizeof size));
    for (int64_t i = 0; i < m->tensor_count; i++) {
        fprintf(out, "  %-10s %s ", m->tensors[i].kind, sl_quote(m->tensors[i].name).text);
        print_shape(out, m->tensors[i].shape.rank, m->tensors[i].shape.dim);
        fputc('\n', out);
    }
}

/* A manifest in a format this program reads. */
static sluice_status read_known(const char *path, const uint64_t *step, sl_manifest **out)
{
    sl_manifest *m = NULL;
    SL_TRY(sl_manifest_read(path, step, &m));
    sluice_status st = sl_manifest_check_format(m, path);
    if (st != SLUICE_OK) {
        sl_manifest_free(m);
        return st;
    }
    *out = m;
    return SLUICE_OK;
}

static sluice_status inspect_checkpoint(const char *path, bool json, FILE *out)
{
    sl_manifest *m = NULL;
    SL_TRY(read_known(path, NULL, &m));
    (json ? print_checkpoint_json : print_checkpoint_text)(m, path, out);
    sl_manifest_free(m);
    return SLUICE_OK;
}

/* step NULL: the folder's name says nothing. */
static sluice_status verify_step(const char *path, const uint64_t *step, FILE *out)
{
    sl_manifest *m = NULL;
    char size[32];
    SL_TRY(read_known(path, step, &m));
    sluice_status st = sl_verify_data(NULL, m, path, NULL);
    if (st == SLUICE_OK)
        fprintf(out, "%s: ok: step %" PRIu64 ", %" PRId64 " tensor%s, %s, every checksum matches\n", path, m->meta.step,
                m->tensor_count, plural(m->tensor_count), sl_format_bytes(data_bytes(m), size, sizeof size));
    sl_manifest_free(m);
    return st;
}

static sluice_status verify_checkpoint(const char *path, FILE *out)
{
    return verify_step(path, NULL, out);
}

/* ---- a folder of checkpoints ---- */

/* What is said of one checkpoint among several: its manifest's faults do not hide the others. */
static sluice_status print_entry(const char *path, sl_entry entry, bool json, bool first, FILE *out)
{
    sl_manifest *m = NULL;
    sluice_status st = read_known(path, &entry.step, &m);
    if (st == SLUICE_ERR_NO_MEMORY) return st;
    if (json) {
        fprintf(out, "%s{\"step\": %" PRIu64 ", ", first ? "" : ", ", entry.step);
        print_json_member(out, "path", path);
        if (m != NULL) fprintf(out, ", \"bytes\": %" PRIu64 ", \"fault\": null}", data_bytes(m));
        if (m == NULL) {
            fputs(", ", out);
            print_json_member(out, "fault", sluice_error());
            fputc('}', out);
        }
    } else if (m != NULL) {
        char size[32];
        fprintf(out, "  %s: step %" PRIu64 ", %s\n", path, m->meta.step,
                sl_format_bytes(data_bytes(m), size, sizeof size));
    } else {
        fprintf(out, "  %s: damaged: %s\n", path, sluice_error());
    }
    sl_manifest_free(m);
    return SLUICE_OK;
}

static int64_t count_committed(const sl_entries *e)
{
    int64_t count = 0;
    for (int64_t i = 0; i < e->count; i++) count += e->list[i].kind != SL_ENTRY_TMP;
    return count;
}

static sluice_status print_entries(const char *folder, const sl_entries *e, bool json, FILE *out)
{
    bool first = true;
    for (int64_t i = 0; i < e->count; i++) {
        char path[PATH_MAX];
        if (e->list[i].kind == SL_ENTRY_TMP) continue;
        SL_TRY(sl_entry_path(folder, e->list[i], path));
        SL_TRY(print_entry(path, e->list[i], json, first, out));
        first = false;
    }
    return SLUICE_OK;
}

/* The newest fault-free manifest is not looked for here: that takes all data to be read. */
static sluice_status inspect_folder(const char *folder, bool json, FILE *out)
{
    sl_entries e;
    SL_TRY(sl_entries_read(folder, &e));
    if (count_committed(&e) == 0) {
        sl_entries_free(&e);
        return sl_refuse_folder(folder);
    }
    if (json) {
        fputs("{\"type\": \"checkpoints\", ", out);
        print_json_member(out, "path", folder);
        fputs(", \"checkpoints\": [", out);
    } else {
        fprintf(out, "%s: folder of checkpoints, newest first\n", folder);
    }
    sluice_status st = print_entries(folder, &e, json, out);
    sl_entries_free(&e);
    if (json) fputs("]}\n", out);
    return st;
}

/* Verifies all, says so for each, and fails with the first fault. */
static sluice_status verify_entries(const char *folder, const sl_entries *e, FILE *out)
{
    char first_fault[SL_MESSAGE_BYTES] = "";
    sluice_status result = SLUICE_OK;
    if (count_committed(e) == 0) return sl_refuse_folder(folder);
    for (int64_t i = 0; i < e->count; i++) {
        char path[PATH_MAX];
        if (e->list[i].kind == SL_ENTRY_TMP) continue;
        SL_TRY(sl_entry_path(folder, e->list[i], path));
        sluice_status st = verify_step(path, &e->list[i].step, out);
        if (st == SLUICE_OK) continue;
        fprintf(out, "%s: damaged: %s\n", path, sluice_error());
        if (result == SLUICE_OK) sl_error_copy(first_fault);
        if (result == SLUICE_OK) result = st;
    }
    return result == SLUICE_OK ? SLUICE_OK : sl_fail(result, "%s", first_fault);
}

static sluice_status verify_folder(const char *folder, FILE *out)
{
    sl_entries e;
    SL_TRY(sl_entries_read(folder, &e));
    sluice_status st = verify_entries(folder, &e, out);
    sl_entries_free(&e);
    return st;
}

/* The folder of a model: what it is, then its tensors. */
static sluice_status inspect_model_folder(const char *path, bool json, FILE *out)
{
    SL_TRY(sl_inspect_model(path, json, out));
    return sl_is_weights_folder(path) ? inspect_weights(path, json, out) : SLUICE_OK;
}

sluice_status sluice_inspect(const char *path, bool json, FILE *out)
{
    static sluice_status (*const inspect[])(const char *, bool, FILE *) = {
        [PATH_WEIGHTS] = inspect_weights, [PATH_CHECKPOINT] = inspect_checkpoint, [PATH_FOLDER] = inspect_folder
    };
    SL_NEED_PATH(path);
    SL_NEED(out);
    if (is_tokenizer(path)) return inspect_tokenizer(path, json, out);
    path_kind kind = kind_of(path);
    bool model = kind != PATH_CHECKPOINT && sl_is_folder(path) && sl_is_model_folder(path) && !has_checkpoints(path);
    return model ? inspect_model_folder(path, json, out) : inspect[kind](path, json, out);
}

sluice_status sluice_verify(const char *path, FILE *out)
{
    static sluice_status (*const verify[])(const char *, FILE *) = {
        [PATH_WEIGHTS] = verify_weights, [PATH_CHECKPOINT] = verify_checkpoint, [PATH_FOLDER] = verify_folder
    };
    SL_NEED_PATH(path);
    SL_NEED(out);
    return verify[kind_of(path)](path, out);
}
