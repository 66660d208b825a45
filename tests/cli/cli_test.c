/* cli_test.c: what the program prints, and how it answers signals. */
#include <dirent.h>
#include <jansson.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/picture_writer.h"
#include "support/run.h"
#include "support/sanitized.h"
#include "support/wav_writer.h"
#include "test.h"

static const char *new_folder(void)
{
    static char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    return folder;
}

/* ---- the stack ---- */

/* A small limit is raised where that is allowed, and named where it is not. */
TEST(a_small_stack_is_raised_or_refused)
{
    static const struct {
        const char *limit;
        int status;
        const char *says;
    } rows[] = {
        { "-S -s 128", 0, "" },
        { "-s 512", 0, "" },
        { "-s 128", 1, "sluice: the stack may have 128 KiB, and 512 are needed; raise the limit: ulimit -s 8192\n" },
    };
    char command[8192];
    const char *folder = new_folder();
    if (SANITIZED) SKIP(plain_build, "frames are larger under a sanitizer");
    run_write_config(folder, "c.json", "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command, "cd %s && ulimit %s && %s/sluice train c.json --quiet 2> told", folder,
                 rows[i].limit, SLUICE_BINARY_DIR);
        int status = system(command);
        CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == rows[i].status, "ulimit %s: %d", rows[i].limit, status);
        snprintf(command, sizeof command, "%s/told", folder);
        char *told = run_read(command);
        CHECK_STR(told, rows[i].says);
        free(told);
    }
}

/* ---- help and documentation ---- */

TEST(help_lists_every_command_and_each_command_has_help)
{
    static const char *const commands[] = { "plan",    "train",  "eval",    "generate", "export",
                                            "inspect", "verify", "devices", "config" };
    const char *folder = new_folder();
    run_result all = run_sluice(folder, "--help");
    CHECK_EQ(all.status, 0);
    CHECK_CONTAINS(all.out, "exit status");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char arguments[64], usage[64];
        snprintf(arguments, sizeof arguments, "%s --help", commands[i]);
        snprintf(usage, sizeof usage, "usage: sluice %s", commands[i]);
        run_result one = run_sluice(folder, arguments);
        CHECK_EQ(one.status, 0);
        CHECK_CONTAINS(one.out, usage);
        CHECK_CONTAINS(one.out, "--help");
        CHECK_STR(one.error, "");
        CHECK_CONTAINS(all.out, commands[i]);
        run_free(&one);
    }
    run_free(&all);
}

TEST(help_followed_by_a_command_prints_what_the_command_prints_with_help)
{
    static const char *const commands[] = { "plan",    "train",  "eval",    "generate", "export",
                                            "inspect", "verify", "devices", "config" };
    const char *folder = new_folder();
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char arguments[64];
        snprintf(arguments, sizeof arguments, "help %s", commands[i]);
        run_result asked = run_sluice(folder, arguments);
        snprintf(arguments, sizeof arguments, "%s --help", commands[i]);
        run_result option = run_sluice(folder, arguments);
        CHECK_EQ(asked.status, 0);
        CHECK_STR(asked.out, option.out);
        CHECK_STR(asked.error, "");
        run_free(&asked);
        run_free(&option);
    }
}

TEST(the_version_is_printed)
{
    run_result r = run_sluice(new_folder(), "--version");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.out, "sluice 0.2.0\n");
    run_free(&r);
}

TEST(no_command_is_a_mistake_and_prints_the_usage)
{
    run_result r = run_sluice(new_folder(), "");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "usage: sluice COMMAND");
    CHECK_STR(r.out, "");
    run_free(&r);
}

TEST(the_page_of_configuration_keys_is_up_to_date)
{
    run_result r = run_sluice(new_folder(), "config --markdown");
    char *page = run_read(SLUICE_SOURCE_DIR "/docs/config.md");
    CHECK_EQ(r.status, 0);
    if (strcmp(r.out, page) != 0)
        test_fail(__FILE__, __LINE__, "docs/config.md differs; run: sluice config --markdown > docs/config.md");
    free(page);
    run_free(&r);
}

static const char *new_below(const char *folder, const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%.4000s/%.100s", folder, name);
    if (mkdir(path, 0777) != 0) exit(99);
    return path;
}

/* Two classes of pictures. */
static void write_pictures(const char *folder, int count)
{
    uint8_t pixels[8 * 8 * 3];
    for (int class = 0; class < 2; class ++) {
        const char *below = new_below(folder, class == 0 ? "cat" : "dog");
        for (int i = 0; i < count; i++) {
            char name[32];
            snprintf(name, sizeof name, "%d.png", i);
            paint(pixels, 8, 8, 3, i);
            picture_bytes file = write_png(pixels, 8, 8, 2, 8, false);
            write_picture(below, name, file.data, file.bytes);
            free(file.data);
        }
    }
}

/* Pairs of sentences as MRPC's, and a folder with a small BERT and its tokenizer. */
static void write_pairs(const char *folder)
{
    char lines[4096];
    size_t end = (size_t)snprintf(lines, sizeof lines, "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n");
    for (int i = 0; i < 64; i++)
        end += (size_t)snprintf(lines + end, sizeof lines - end, "%d\t1\t2\tthe cat sat %d\tthe dog sat\n", i % 2, i);
    new_below(folder, "data/mrpc");
    run_write(folder, "data/mrpc/train.tsv", lines);
    run_write(folder, "data/mrpc/dev.tsv", lines);
    run_write(folder, "bert.json",
              "{\"model\": {\"type\": \"bert\", \"head\": \"classifier\", \"layers\": 1, \"heads\": 2, \"width\": 16, "
              "\"context\": 72, \"outputs\": 2},\n \"data\": {\"type\": \"glue\", \"path\": \"data/mrpc\", "
              "\"tokenizer\": \"" SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json\"},\n"
              "\"optimizer\": {\"type\": \"SGD\"}, \"steps\": 1, \"train_batch_size\": 8, \"save\": \"minilm/\"}\n");
    run_result r = run_sluice(folder, "train bert.json --quiet");
    CHECK_THAT(r.status == 0, "status %d: %s", r.status, r.error);
    run_free(&r);
}

/* Rows of clicks as scripts/make-clicks makes them. */
static void write_clicks(const char *folder)
{
    static char lines[65536];
    size_t end = (size_t)snprintf(lines, sizeof lines, "label,age,price,user,item\n");
    for (int i = 0; i < 1100; i++)
        end += (size_t)snprintf(lines + end, sizeof lines - end, "%d,%d,%d.5,u%d,i%d\n", i % 3 == 0, i % 70, i % 9,
                                i % 50, i * 7 % 90);
    new_below(folder, "data/clicks");
    run_write(folder, "data/clicks/train.csv", lines);
    run_write(folder, "data/clicks/test.csv", lines);
}

/* What examples name: a text, folders with small sets in them, a model. */
static void write_example_data(const char *folder)
{
    char text[8001], below[4200];
    for (int i = 0; i < 8000; i++) text[i] = (char)(i % 6 == 5 ? ' ' : 'a' + i * 7 % 26);
    text[8000] = '\0';
    run_write(folder, "input.txt", text);
    new_below(folder, "data");
    new_below(folder, "data/shakespeare");
    run_write(folder, "data/shakespeare/input.txt", text);
    write_digits(new_below(folder, "data/mnist"), "t10k", 500, 28, 10);
    snprintf(below, sizeof below, "%s", new_below(folder, "data/cifar10"));
    write_cifar(below, "data_batch_1.bin", 300, 0, 1);
    write_cifar(below, "test_batch.bin", 100, 300, 1);
    snprintf(below, sizeof below, "%s", new_below(folder, "data/images"));
    write_pictures(below, 130);
    write_pairs(folder);
    write_clicks(folder);
    char *tokenizer = run_read(SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json");
    new_below(folder, "wordpiece");
    run_write(folder, "wordpiece/tokenizer.json", tokenizer);
    free(tokenizer);
    snprintf(below, sizeof below, "%s", new_below(folder, "data/digits"));
    write_tone_folder(below, 32);
    run_write(folder, "data/digits/validation.tsv", "path\ttext\n000.wav\ta\n");
}

TEST(every_example_configuration_is_valid)
{
    const char *folder = new_folder();
    DIR *examples = opendir(SLUICE_SOURCE_DIR "/examples");
    REQUIRE(examples != NULL);
    int count = 0;
    write_example_data(folder);
    for (struct dirent *entry; (entry = readdir(examples)) != NULL;) {
        char arguments[4096];
        if (strstr(entry->d_name, ".json") == NULL) continue;
        snprintf(arguments, sizeof arguments, "config '" SLUICE_SOURCE_DIR "/examples/%s'", entry->d_name);
        run_result r = run_sluice(folder, arguments);
        if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: %s", entry->d_name, r.error);
        run_free(&r);
        count++;
    }
    closedir(examples);
    CHECK(count >= 4);
}

/* As a user would have them, in a folder with data, for a machine that is large enough. */
TEST(every_example_is_planned_without_a_warning)
{
    const char *folder = new_folder();
    DIR *examples = opendir(SLUICE_SOURCE_DIR "/examples");
    REQUIRE(examples != NULL);
    int count = 0;
    write_example_data(folder);
    run_write(
        folder, "machine.json",
        "{\"sluice_machine\": 1, \"gemm_flops\": 2e13, \"gemm_16bit_flops\": 1e14, \"vector_flops\": 1e12,\n"
        "\"device_bytes_per_second\": 9e11, \"update_bytes_per_second\": 3e10, \"to_device_bytes_per_second\": 2e10,\n"
        "\"to_host_bytes_per_second\": 2e10, \"comm_bytes_per_second\": 1e10, \"link_latency\": 2e-6,\n"
        "\"kernel_latency\": 2e-6, \"comm_latency\": 2e-5, \"device_bytes\": \"24GiB\", \"host_bytes\": \"256GiB\",\n"
        "\"shared_memory\": false, \"copies_overlap\": true}\n");
    for (struct dirent *entry; (entry = readdir(examples)) != NULL;) {
        char arguments[4096];
        if (strstr(entry->d_name, ".json") == NULL) continue;
#ifndef SLUICE_PNG
        if (strstr(entry->d_name, "resnet152") != NULL) continue;
#endif
#ifndef SLUICE_SOUND
        if (strstr(entry->d_name, "speech") != NULL) continue;
#endif
        snprintf(arguments, sizeof arguments, "plan '" SLUICE_SOURCE_DIR "/examples/%s' --machine machine.json",
                 entry->d_name);
        run_result r = run_sluice(folder, arguments);
        CHECK_THAT(r.status == 0 && strstr(r.error, "warning") == NULL, "%s: status %d: %s", entry->d_name, r.status,
                   r.error);
        run_free(&r);
        count++;
    }
    closedir(examples);
    CHECK(count >= 4);
}

TEST(the_effective_configuration_contains_what_was_set)
{
    const char *folder = new_folder();
    json_error_t error;
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "config a.json --set optimizer.params.lr=0.25 --set zero_optimization.stage=2");
    CHECK_EQ(r.status, 0);
    json_t *root = json_loads(r.out, 0, &error);
    REQUIRE(root != NULL);
    json_t *params = json_object_get(json_object_get(root, "optimizer"), "params");
    CHECK_NEAR(json_number_value(json_object_get(params, "lr")), 0.25, 0);
    CHECK_EQ(json_integer_value(json_object_get(json_object_get(root, "zero_optimization"), "stage")), 2);
    json_decref(root);
    run_free(&r);
}

/* ---- events ---- */

/* Line `index` of a text, parsed; NULL past the end. */
static json_t *event_line(const char *text, int index)
{
    json_error_t error;
    for (int i = 0; i < index; i++) {
        text = strchr(text, '\n');
        if (text == NULL) return NULL;
        text++;
    }
    size_t length = strcspn(text, "\n");
    return length > 0 ? json_loadb(text, length, JSON_REJECT_DUPLICATES, &error) : NULL;
}

/* The fields of each event, exactly; nested ones with a dot. */
static const struct {
    const char *event;
    const char *fields[24];
} schemas[] = {
    { "plan",
      { "ranks",
        "stage",
        "parameters",
        "peak_bytes.device",
        "peak_bytes.host",
        "peak_bytes.disk",
        "overhead_bytes",
        "state_bytes.parameters",
        "state_bytes.gradients",
        "state_bytes.optimizer",
        "step_seconds",
        "moved_bytes.to_device",
        "moved_bytes.to_host",
        "moved_bytes.disk_read",
        "moved_bytes.disk_write",
        "comm_bytes.gather",
        "comm_bytes.reduce",
        "comm_bytes.norm",
        "tokens_per_second",
        "mfu" } },
    { "phase", { "phase", "done", "total", "seconds", "over" } },
    { "resumed", { "step" } },
    { "step",
      { "step", "epoch", "loss", "lr", "grad_norm", "seconds", "samples", "tokens", "skipped", "loss_scale",
        "tokens_per_second", "mfu", "data_seconds" } },
    { "eval", { "step", "loss", "accuracy" } },
    { "saved", { "step", "path" } },
    { "epoch", { "step", "epoch", "loss", "seconds" } },
    { "end",
      { "steps", "peak_bytes.device", "peak_bytes.host", "peak_bytes.disk", "moved_bytes.to_device",
        "moved_bytes.to_host", "moved_bytes.disk_read", "moved_bytes.disk_write", "comm_bytes.gather",
        "comm_bytes.reduce", "comm_bytes.norm", "speculated", "rolled_back", "weights_sha256", "state_sha256",
        "tokens_per_second", "mfu", "data_seconds" } },
};

static json_t *field_of(json_t *object, const char *dotted)
{
    char section[64];
    const char *dot = strchr(dotted, '.');
    if (dot == NULL) return json_object_get(object, dotted);
    snprintf(section, sizeof section, "%.*s", (int)(dot - dotted), dotted);
    return json_object_get(json_object_get(object, section), dot + 1);
}

static void check_event(json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    for (size_t i = 0; name != NULL && i < sizeof schemas / sizeof schemas[0]; i++) {
        if (strcmp(name, schemas[i].event) != 0) continue;
        for (int f = 0; f < 24 && schemas[i].fields[f] != NULL; f++)
            if (field_of(event, schemas[i].fields[f]) == NULL)
                test_fail(__FILE__, __LINE__, "%s lacks %s", name, schemas[i].fields[f]);
        return;
    }
    test_fail(__FILE__, __LINE__, "event %s is not known", name != NULL ? name : "without a name");
}

/* How many events of one name a text holds; every line must be a known event. */
static int count_events(const char *text, const char *wanted)
{
    int count = 0;
    json_t *event;
    for (int i = 0; (event = event_line(text, i)) != NULL; i++) {
        const char *name = json_string_value(json_object_get(event, "event"));
        check_event(event);
        count += name != NULL && strcmp(name, wanted) == 0;
        json_decref(event);
    }
    return count;
}

TEST(json_output_is_one_known_event_a_line_and_nothing_else)
{
    const char *folder = new_folder();
    int lines = 0, events = 0;
    run_write_config(folder, "a.json",
                     ", \"checkpoint\": {\"path\": \"run\", \"every\": 2}, \"evaluate\": {\"every\": 2}");
    run_result r = run_sluice(folder, "train a.json --json --set data.validation=0.2");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    for (const char *c = r.out; *c != '\0'; c++) lines += *c == '\n';
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) events += count_events(r.out, schemas[i].event);
    CHECK_EQ(events, lines);
    CHECK_EQ(count_events(r.out, "plan"), 1);
    CHECK_EQ(count_events(r.out, "step"), 5);
    CHECK_EQ(count_events(r.out, "end"), 1);
    CHECK_EQ(count_events(r.out, "saved"), 3);
    CHECK(count_events(r.out, "eval") >= 3);
    run_free(&r);
}

/* ---- precision ---- */

TEST(tokens_a_second_and_mfu_are_told_of_every_step_and_of_the_run)
{
    const char *folder = new_folder();
    json_t *event;
    int told = 0;
    run_write(folder, "text.txt",
              "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in "
              "want of a wife.\n");
    run_write(
        folder, "g.json",
        "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 16}, \"data\": "
        "{\"type\": \"text\", \"path\": \"text.txt\"}, \"steps\": 3, \"train_batch_size\": 2, \"threads\": 1, "
        "\"optimizer\": {\"type\": \"AdamW\"}, \"bf16\": {\"enabled\": true}}");
    /* a machine on which these steps would take seconds: a shorter run has no utilization */
    run_write(
        folder, "slow.json",
        "{\"sluice_machine\": 1, \"gemm_flops\": 6e10, \"vector_flops\": 8e9, \"device_bytes_per_second\": 1e10, "
        "\"update_bytes_per_second\": 1e10, \"to_device_bytes_per_second\": 7e9, \"to_host_bytes_per_second\": 6e9, "
        "\"comm_bytes_per_second\": 3e9, \"link_latency\": 2e-6, \"kernel_latency\": 1, \"comm_latency\": 2e-5, "
        "\"device_bytes\": \"1GiB\", \"host_bytes\": \"2GiB\", \"shared_memory\": false, \"copies_overlap\": true}");
    run_result json = run_sluice(folder, "train g.json --machine slow.json --json");
    run_result text = run_sluice(folder, "train g.json --machine slow.json");
    CHECK_EQ(json.status, 0);
    for (int i = 0; (event = event_line(json.out, i)) != NULL; i++) {
        json_t *tokens = json_object_get(event, "tokens_per_second"), *mfu = json_object_get(event, "mfu");
        if (tokens != NULL) {
            CHECK(json_number_value(tokens) > 0);
            CHECK(json_number_value(mfu) > 0);
            told++;
        }
        json_decref(event);
    }
    CHECK_EQ(told, 5); /* the plan, three steps, the end */
    CHECK_EQ(text.status, 0);
    CHECK_CONTAINS(text.out, "expected: ");
    CHECK_CONTAINS(text.out, " tokens/s");
    CHECK_CONTAINS(text.out, "  MFU ");
    CHECK_CONTAINS(text.out, "tokens per second");
    CHECK_CONTAINS(text.out, "model FLOPs utilization");
    run_result brief = run_sluice(folder, "train g.json");
    CHECK_EQ(brief.status, 0);
    CHECK_CONTAINS(brief.out, "tokens per second");
    CHECK(strstr(brief.out, "model FLOPs utilization") == NULL);
    run_free(&json);
    run_free(&text);
    run_free(&brief);
}

TEST(a_step_that_is_left_out_is_told_in_the_event_and_on_the_line)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 40}");
    run_result json = run_sluice(folder, "train a.json --json"), text = run_sluice(folder, "train a.json");
    CHECK_EQ(json.status, 0);
    CHECK_CONTAINS(json.out, "\"grad_norm\":null,");
    CHECK_CONTAINS(json.out, "\"skipped\":true,\"loss_scale\":1099511627776,");
    CHECK_CONTAINS(json.error, "sluice: note: step 1 overflowed and was skipped; the loss scale stays");
    CHECK_CONTAINS(json.error,
                   "step 2 overflowed and was skipped; the loss scale falls from 1.09951e+12 to 5.49756e+11");
    CHECK_CONTAINS(text.out, "skipped at loss scale ");
    run_free(&json);
    run_free(&text);
}

static bool is_there(const char *folder, const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* A fixed scale does not come to an end of it by itself. */
TEST(a_run_of_which_every_step_was_left_out_has_trained_nothing_and_says_so)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", ", \"fp16\": {\"enabled\": true}, \"save\": \"w.safetensors\"");
    run_result all = run_sluice(folder, "train a.json --set fp16.loss_scale=1e38 --set checkpoint.path=kept");
    CHECK_EQ(all.status, 7);
    CHECK_CONTAINS(all.error, "sluice: all 5 steps overflowed at the fixed loss scale 1e+38 (fp16.loss_scale)");
    CHECK(!is_there(folder, "w.safetensors") && !is_there(folder, "kept/step-5"));
    run_result dynamic = run_sluice(folder, "train a.json --quiet --set fp16.initial_scale_power=100"),
               good = run_sluice(folder, "train a.json --quiet --set fp16.loss_scale=128");
    CHECK_EQ(dynamic.status, 0);
    CHECK_CONTAINS(dynamic.error, "5 of 5 steps overflowed and were skipped: nothing was trained");
    CHECK_EQ(good.status, 0);
    CHECK_STR(good.error, "");
    /* what trained before it was interrupted has trained */
    run_must(folder, "train a.json --quiet --set checkpoint.path=parts --set steps=2 --set fp16.loss_scale=128");
    run_result rest = run_sluice(folder, "train a.json --quiet --resume --set checkpoint.path=parts "
                                         "--set fp16.loss_scale=1e38");
    CHECK_EQ(rest.status, 0);
    CHECK_CONTAINS(rest.error, "3 of 3 steps overflowed and were skipped: nothing was trained");
    run_free(&rest);
    run_free(&all);
    run_free(&dynamic);
    run_free(&good);
}

TEST(numbers_that_are_not_finite_end_with_exit_status_7_and_one_line)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json --set optimizer.params.lr=1e30 --set steps=50");
    CHECK_EQ(r.status, 7);
    CHECK_CONTAINS(r.error, "sluice: step ");
    CHECK_CONTAINS(r.error, " (layer \"");
    CHECK_CONTAINS(r.error, "\", rank 0) is ");
    CHECK_CONTAINS(r.error, "the weights are unchanged. To go on, ");
    run_free(&r);
}

TEST(quiet_training_prints_nothing)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json --quiet");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.out, "");
    CHECK_STR(r.error, "");
    run_free(&r);
}

TEST(training_prints_the_plan_then_plain_lines_where_there_is_no_terminal)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "device");
    CHECK_CONTAINS(r.out, "step 1/5  loss ");
    CHECK_CONTAINS(r.out, "step 5/5  loss ");
    CHECK_CONTAINS(r.out, "samples/s");
    CHECK_CONTAINS(r.out, "weights sha256 ");
    CHECK(strchr(r.out, '\r') == NULL);
    CHECK(strchr(r.out, '\033') == NULL);
    run_free(&r);
}

TEST(lines_come_as_often_as_steps_per_print_says)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", ", \"steps_per_print\": 3");
    run_result r = run_sluice(folder, "train a.json");
    CHECK_CONTAINS(r.out, "step 1/5  loss ");
    CHECK_CONTAINS(r.out, "step 3/5  loss ");
    CHECK(strstr(r.out, "step 2/5") == NULL);
    CHECK(strstr(r.out, "step 4/5") == NULL);
    run_free(&r);
}

TEST(keys_without_effect_are_noted_on_standard_error_alone)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", ", \"zero_optimization\": {\"overlap_comm\": true}");
    run_result r = run_sluice(folder, "train a.json --json");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "sluice: note: a.json:3: zero_optimization.overlap_comm has no effect");
    CHECK_EQ(count_events(r.out, "step"), 5);
    run_free(&r);
}

/* ---- plan, eval, inspect ---- */

TEST(keys_without_effect_are_one_line_and_notes_shows_each)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json",
                     ", \"zero_optimization\": {\"overlap_comm\": true, \"contiguous_gradients\": true, "
                     "\"offload_param\": {\"pin_memory\": true}}");
    run_result folded = run_sluice(folder, "plan a.json"), all = run_sluice(folder, "plan a.json --notes"),
               quiet = run_sluice(folder, "plan a.json --quiet");
    CHECK_CONTAINS(folded.error, "sluice: note: a.json: 3 keys have no effect here: offload_param.pin_memory, "
                                 "contiguous_gradients, overlap_comm; --notes shows why\n");
    CHECK(strstr(folded.error, "zero_optimization.overlap_comm") == NULL);
    CHECK_CONTAINS(all.error, "zero_optimization.overlap_comm has no effect: ");
    CHECK_CONTAINS(all.error, "zero_optimization.contiguous_gradients has no effect: ");
    CHECK_STR(quiet.error, "");
    run_free(&folded);
    run_free(&all);
    run_free(&quiet);
}

/* Their number is known only when the data is. */
TEST(a_warmup_longer_than_the_epochs_is_warned_of)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json",
                     ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 500}}");
    run_result r = run_sluice(folder, "train a.json --set steps=null --set epochs=1");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "warning: scheduler.params.warmup_num_steps is 500, but the run has ");
    run_free(&r);
}

TEST(control_characters_in_paths_and_arguments_are_shown_not_sent)
{
    const char *folder = new_folder();
    run_write_config(folder, "config.json", "");
    run_result saved =
        run_sluice(folder, "train config.json --set \"$(printf 'checkpoint.path=a\\nb\\033[31m')\" --set threads=1");
    CHECK_EQ(saved.status, 0);
    CHECK_CONTAINS(saved.out, "saved a\\nb\\x1b[31m/");
    CHECK(strchr(saved.out, '\033') == NULL);
    run_result refused = run_sluice(folder, "train \"$(printf 'no\\nwhere\\033[1m.json')\"");
    CHECK_EQ(refused.status, 2);
    CHECK_CONTAINS(refused.error, "no\\nwhere\\x1b[1m.json");
    run_result unknown = run_sluice(folder, "\"$(printf 'tr\\nain')\"");
    CHECK_EQ(unknown.status, 2);
    CHECK_CONTAINS(unknown.error, "unknown command \"tr\\nain\"");
    run_free(&saved);
    run_free(&refused);
    run_free(&unknown);
}

TEST(plan_prints_a_table_or_one_event)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", "");
    run_result text = run_sluice(folder, "plan a.json"), json = run_sluice(folder, "plan a.json --json");
    CHECK_EQ(text.status, 0);
    CHECK_CONTAINS(text.out, "device");
    CHECK_EQ(json.status, 0);
    CHECK_EQ(count_events(json.out, "plan"), 1);
    run_free(&text);
    run_free(&json);
}

TEST(weights_that_were_saved_can_be_evaluated_inspected_and_verified)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", ", \"save\": \"w.safetensors\"");
    run_result train = run_sluice(folder, "train a.json --quiet"), eval = run_sluice(folder, "eval a.json --json"),
               inspect = run_sluice(folder, "inspect w.safetensors"),
               verify = run_sluice(folder, "verify w.safetensors");
    CHECK_EQ(train.status, 0);
    CHECK_EQ(eval.status, 0);
    CHECK_EQ(count_events(eval.out, "eval"), 1);
    CHECK_EQ(inspect.status, 0);
    CHECK_CONTAINS(inspect.out, "weight");
    CHECK_EQ(verify.status, 0);
    run_free(&train);
    run_free(&eval);
    run_free(&inspect);
    run_free(&verify);
}

/* ---- signals ---- */

/* Waits until the running program has written `part` to its output, or has ended without. */
static bool wait_for_output(const char *folder, pid_t child, const char *part)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/out", folder);
    for (bool ended = false;; usleep(10000)) {
        siginfo_t state = { .si_pid = 0 };
        bool last_look = ended;
        char *text = run_read(path);
        bool found = strstr(text, part) != NULL;
        free(text);
        if (found || last_look) return found;
        ended = waitid(P_PID, (id_t)child, &state, WEXITED | WNOHANG | WNOWAIT) != 0 || state.si_pid == child;
    }
}

#define LONG_RUN       ", \"checkpoint\": {\"path\": \"run\"}"
#define LONG_ARGUMENTS "train a.json --json --set steps=100000000"

static void check_stopped_by(int signal_number)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", LONG_RUN);
    pid_t child = run_start(folder, LONG_ARGUMENTS);
    CHECK(wait_for_output(folder, child, "\"event\":\"step\""));
    kill(child, signal_number);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 75);
    CHECK_CONTAINS(r.error, "sluice: stopped");
    CHECK_CONTAINS(r.out, "\"event\":\"saved\"");
    run_free(&r);
}

TEST(sigterm_finishes_the_step_saves_and_exits_75)
{
    check_stopped_by(SIGTERM);
}

TEST(sigint_finishes_the_step_saves_and_exits_75)
{
    check_stopped_by(SIGINT);
}

TEST(phases_are_told_in_their_order_and_end)
{
    static const char *const order[] = { "\"phase\":\"plan\"", "\"phase\":\"reserve\"", "\"phase\":\"fill\"",
                                         "\"event\":\"plan\"", "\"event\":\"step\"",    "\"phase\":\"hash\"",
                                         "\"event\":\"end\"" };
    const char *folder = new_folder();
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json --json --set steps=2");
    const char *at = r.out;
    CHECK_EQ(r.status, 0);
    for (size_t i = 0; i < sizeof order / sizeof order[0] && at != NULL; i++) {
        at = strstr(at, order[i]);
        if (at == NULL) test_fail(__FILE__, __LINE__, "no %s, or too early, in %s", order[i], r.out);
    }
    CHECK_EQ(count_events(r.out, "phase"), 4);
    CHECK(strstr(r.out, "\"over\":false") == NULL);
    run_free(&r);
}

TEST(hashes_false_leaves_the_hashes_out_everywhere)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", ", \"hashes\": false");
    run_result json = run_sluice(folder, "train a.json --json --set steps=1"),
               text = run_sluice(folder, "train a.json --set steps=1"),
               with = run_sluice(folder, "train a.json --set steps=1 --set hashes=true");
    CHECK_EQ(json.status, 0);
    CHECK_EQ(text.status, 0);
    CHECK_CONTAINS(json.out, "\"event\":\"end\"");
    CHECK(strstr(json.out, "sha256") == NULL && strstr(json.out, "\"hash\"") == NULL);
    CHECK_CONTAINS(text.out, "done: 1 steps");
    CHECK(strstr(text.out, "sha256") == NULL);
    CHECK_CONTAINS(with.out, "weights sha256 ");
    run_free(&json);
    run_free(&text);
    run_free(&with);
}

TEST(the_last_line_has_the_peaks_of_the_memories_that_were_used)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", "");
    run_result host = run_sluice(folder, "train a.json --set steps=1"),
               disk =
                   run_sluice(folder, "train a.json --set steps=1 --set optimizer.type=AdamW --set memory.disk_path=. "
                                      "--set zero_optimization.offload_optimizer.device=nvme");
    double device, there, swapped;
    const char *done = strstr(disk.out, "; peak device ");
    CHECK_EQ(host.status, 0);
    CHECK_EQ(disk.status, 0);
    CHECK_CONTAINS(host.out, ", host 0 B\n");
    CHECK_THAT(done != NULL &&
                   sscanf(done, "; peak device %lf KiB, host %lf KiB, disk %lf KiB", &device, &there, &swapped) == 3 &&
                   swapped > 0,
               "no peaks in %s", disk.out);
    run_free(&host);
    run_free(&disk);
}

/* All that a run writes to a terminal; *status as of waitpid. */
static size_t run_on_terminal(const char *folder, char *out, size_t bytes, int *status)
{
    int terminal;
    size_t used = 0;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    if (child == 0) {
        if (chdir(folder) == 0 && setenv("TERM", "xterm", 1) == 0)
            execl(SLUICE_BINARY_DIR "/sluice", "sluice", "train", "a.json", "--set", "steps=1", (char *)NULL);
        _exit(127);
    }
    if (child < 0) return 0;
    for (ssize_t n = 1; n > 0 && used + 1 < bytes; used += n > 0 ? (size_t)n : 0)
        n = read(terminal, out + used, bytes - 1 - used); /* EIO: the other side is closed */
    out[used] = '\0';
    close(terminal);
    waitpid(child, status, 0);
    return used;
}

TEST(a_terminal_shows_what_goes_on_before_and_after_the_steps)
{
    static char out[64 << 10];
    const char *folder = new_folder();
    int status = -1;
    run_write_config(folder, "a.json", "");
    REQUIRE(run_on_terminal(folder, out, sizeof out, &status) > 0);
    CHECK_EQ(status, 0);
    CHECK_CONTAINS(out, "\r\033[Kplanning ");
    CHECK_CONTAINS(out, "\r\033[Kreserving ");
    CHECK_CONTAINS(out, "\r\033[Kfilling ");
    CHECK_CONTAINS(out, " weights ... 0%");
    CHECK_CONTAINS(out, "\r\033[Khashing ");
    CHECK_CONTAINS(out, "weights sha256 ");
}

TEST(sigusr1_saves_and_goes_on)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", LONG_RUN);
    pid_t child = run_start(folder, LONG_ARGUMENTS);
    CHECK(wait_for_output(folder, child, "\"event\":\"step\""));
    kill(child, SIGUSR1);
    CHECK(wait_for_output(folder, child, "\"event\":\"saved\""));
    kill(child, SIGTERM);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 75);
    CHECK(count_events(r.out, "saved") >= 1);
    run_free(&r);
}

TEST(a_stopped_run_resumes_and_ends_with_the_weights_of_an_uninterrupted_one)
{
    const char *folder = new_folder();
    char hash[2][65] = { "", "" };
    run_write_config(folder, "a.json", ", \"checkpoint\": {\"path\": \"run\"}");
    run_result first = run_sluice(folder, "train a.json --quiet --set steps=3"),
               second = run_sluice(folder, "train a.json --json --resume"),
               whole = run_sluice(folder, "train a.json --json --set checkpoint.path=other");
    CHECK_EQ(first.status, 0);
    CHECK_EQ(count_events(second.out, "resumed"), 1);
    CHECK_EQ(count_events(second.out, "step"), 2);
    const run_result *results[] = { &second, &whole };
    for (int i = 0; i < 2; i++) {
        const char *found = strstr(results[i]->out, "\"weights_sha256\":\"");
        if (found != NULL) snprintf(hash[i], 65, "%s", found + strlen("\"weights_sha256\":\""));
    }
    CHECK_EQ(strlen(hash[0]), 64);
    CHECK_STR(hash[0], hash[1]);
    run_free(&first);
    run_free(&second);
    run_free(&whole);
}

TEST(a_reader_that_goes_away_stops_the_run_after_a_save)
{
    const char *folder = new_folder();
    run_write_config(folder, "a.json", LONG_RUN);
    /* head leaves when steps have begun; the program's own exit status is kept in a file */
    run_result r = run_sluice(folder, "--version >/dev/null; { '" SLUICE_BINARY_DIR "/sluice' " LONG_ARGUMENTS
                                      " 2>err; echo $? >status; } | head -n 6 >/dev/null");
    char path[4400];
    snprintf(path, sizeof path, "%s/status", folder);
    char *status = run_read(path);
    CHECK_STR(status, "6\n");
    snprintf(path, sizeof path, "%s/run/latest", folder);
    CHECK(access(path, F_OK) == 0);
    free(status);
    run_free(&r);
}
