/* outputs_cli_test.c: what a run writes is tried before its first step, and is never one of its inputs.
 *
 * Devices, pipes and links are all made in a folder of the test. */
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

static void new_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write_config(folder, "a.json", "");
    run_write(folder, "text.txt", "The quick brown fox jumps over the lazy dog, again and again and again.\n");
    run_write(folder, "text.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 1, \"width\": 8, \"context\": 4},\n"
              " \"data\": {\"type\": \"text\", \"path\": \"text.txt\"}, \"steps\": 3, \"train_batch_size\": 2,\n"
              " \"optimizer\": {\"type\": \"SGD\"}, \"threads\": 1}\n");
}

static const char *in(const char *folder, const char *name)
{
    static char paths[4][8192];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static mode_t mode_of(const char *folder, const char *name)
{
    struct stat info;
    return lstat(in(folder, name), &info) == 0 ? info.st_mode : 0;
}

/* Fails with that status before the first step, saying all of `texts`, once. */
static void check_refused(const char *folder, const char *arguments, int status, const char *const texts[2])
{
    run_result r = run_sluice(folder, arguments);
    CHECK_THAT(r.status == status, "%s: status %d, expected %d: %s", arguments, r.status, status, r.error);
    CHECK_THAT(strstr(r.out, "\"step\"") == NULL, "%s: a step was done", arguments);
    for (int i = 0; i < 2; i++)
        CHECK_THAT(strstr(r.error, texts[i]) != NULL, "%s: \"%s\" is not in: %s", arguments, texts[i], r.error);
    const char *newline = strchr(r.error, '\n');
    CHECK_THAT(newline != NULL && newline[1] == '\0', "%s: one message, not: %s", arguments, r.error);
    run_free(&r);
}

TEST(an_output_that_cannot_be_written_ends_a_run_before_its_first_step)
{
    static const struct {
        const char *arguments;
        int status;
        const char *texts[2];
    } rows[] = {
        { "train a.json --json --set save=none/x", 6, { "save: ", "No such file" } },
        { "train a.json --json --set save=text.txt/x", 6, { "save: ", "Not a directory" } },
        { "train a.json --json --set save=folder", 2, { "save: folder is a folder", "a model of type mlp has none" } },
        { "train a.json --json --set save=folder/", 2, { "save: folder/", "a model of type mlp has none" } },
        { "train a.json --json --set save=pipe", 2, { "save: pipe is a named pipe", "name a regular file" } },
        { "train a.json --json --set save=link", 2, { "save: link is a named pipe", "name a regular file" } },
        { "train a.json --json --trace pipe", 2, { "--trace: pipe is a named pipe", "name a regular file" } },
        { "train a.json --json --trace none/x", 6, { "--trace: ", "No such file" } },
        { "train a.json --json --set checkpoint.path=text.txt", 6, { "checkpoint.path: ", "Not a directory" } },
        { "train a.json --json --set checkpoint.path=text.txt/x", 6, { "checkpoint.path: ", "Not a directory" } },
        { "train a.json --json --ranks 2 --set save=none/x", 6, { "save: ", "No such file" } },
        { "train a.json --json --ranks 2 --set save=pipe", 2, { "save: pipe is a named pipe", "on rank 0" } },
        { "train a.json --json --ranks 4 --trace ranked", 2, { "ranked.rank2 is a named pipe", "on rank 2" } },
        { "devices --measure --machine pipe", 2, { "pipe is a named pipe", "name a regular file" } },
        { "devices --measure --machine none/x", 6, { "none/x", "No such file" } },
    };
    char folder[4096];
    new_folder(folder);
    REQUIRE(mkdir(in(folder, "folder"), 0700) == 0 && mkfifo(in(folder, "pipe"), 0600) == 0);
    REQUIRE(symlink("pipe", in(folder, "link")) == 0 && mkfifo(in(folder, "ranked.rank2"), 0600) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_refused(folder, rows[i].arguments, rows[i].status, rows[i].texts);
    CHECK(S_ISFIFO(mode_of(folder, "pipe")) && S_ISLNK(mode_of(folder, "link")) && S_ISDIR(mode_of(folder, "folder")));
    CHECK_EQ(mode_of(folder, "folder.tmp"), 0);
    if (mknod(in(folder, "node"), S_IFCHR | 0666, makedev(1, 3)) == 0) { /* root alone may */
        static const char *const texts[] = { "save: node is a device", "name a regular file" };
        check_refused(folder, "train a.json --json --set save=node", 2, texts);
        CHECK(S_ISCHR(mode_of(folder, "node")));
    }
}

TEST(a_run_does_not_write_its_inputs)
{
    static const struct {
        const char *arguments;
        const char *texts[2];
    } rows[] = {
        { "train text.json --json --set save=text.txt", { "save: ", "would replace data.path, text.txt" } },
        { "train text.json --json --set save=hard", { "save: ", "would replace data.path, text.txt" } },
        { "train text.json --json --set save=soft", { "save: ", "would replace data.path, text.txt" } },
        { "train text.json --json --set save=./text.json", { "save: ", "would replace the configuration, text.json" } },
        { "train text.json --json --trace text.txt", { "--trace: ", "would replace data.path" } },
        { "train text.json --json --set load=w --set save=w", { "save: ", "would replace load, w" } },
        { "train text.json --json --set data.path=s.tmp --set save=s", { "save: ", "would replace data.path, s.tmp" } },
        { "train text.json --json --machine m --trace m", { "--trace: ", "would replace --machine, m" } },
        { "train text.json --json --ranks 2 --set save=text.txt", { "save: ", "would replace data.path, text.txt" } },
        { "train text.json --json --trace same --set save=same", { "save and --trace", "the same file" } },
        { "train text.json --json --set checkpoint.path=run", { "checkpoint.path: ", "would replace data.path" } },
    };
    char folder[4096];
    new_folder(folder);
    run_write(folder, "w", "weights");
    run_write(folder, "m", "machine");
    REQUIRE(link(in(folder, "text.txt"), in(folder, "hard")) == 0 && symlink("text.txt", in(folder, "soft")) == 0);
    REQUIRE(link(in(folder, "text.txt"), in(folder, "s.tmp")) == 0 && mkdir(in(folder, "run"), 0700) == 0);
    REQUIRE(link(in(folder, "text.txt"), in(folder, "run/lock")) == 0);
    char *text = run_read(in(folder, "text.txt")), *config = run_read(in(folder, "text.json"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_refused(folder, rows[i].arguments, 2, rows[i].texts);
    char *text_after = run_read(in(folder, "text.txt")), *config_after = run_read(in(folder, "text.json"));
    CHECK_STR(text_after, text);
    CHECK_STR(config_after, config);
    free(text);
    free(config);
    free(text_after);
    free(config_after);
}

TEST(a_save_goes_through_a_link_and_keeps_the_mode)
{
    char folder[4096];
    new_folder(folder);
    run_write(folder, "real", "old");
    REQUIRE(chmod(in(folder, "real"), 0600) == 0 && symlink("real", in(folder, "link")) == 0);
    run_result plain = run_sluice(folder, "train a.json --quiet --set save=plain"),
               through = run_sluice(folder, "train a.json --quiet --set save=link");
    CHECK_EQ(plain.status, 0);
    CHECK_EQ(through.status, 0);
    CHECK(S_ISLNK(mode_of(folder, "link")));
    CHECK_EQ(mode_of(folder, "real") & 07777, 0600);
    run_result same = run_sluice(folder, "inspect real");
    CHECK_EQ(same.status, 0);
    CHECK_EQ(mode_of(folder, "real.tmp"), 0);
    run_free(&plain);
    run_free(&through);
    run_free(&same);
}

TEST(a_refused_run_leaves_an_old_trace_as_it_was)
{
    char folder[4096];
    new_folder(folder);
    run_write(folder, "t.json", "old trace");
    run_result r = run_sluice(folder, "train a.json --quiet --trace t.json --set memory.device=1KiB");
    CHECK_EQ(r.status, 3);
    char *text = run_read(in(folder, "t.json"));
    CHECK_STR(text, "old trace");
    free(text);
    run_free(&r);
}

TEST(data_without_an_end_is_refused_at_once)
{
    static const char *const texts[] = { "endless is a device", "name a regular file" };
    char folder[4096];
    new_folder(folder);
    if (mknod(in(folder, "endless"), S_IFCHR | 0666, makedev(1, 5)) == 0)
        check_refused(folder, "train text.json --json --set data.path=endless", 4, texts);
    static const char *const pipe_texts[] = { "pipe is a named pipe", "name a regular file" };
    REQUIRE(mkfifo(in(folder, "pipe"), 0600) == 0);
    check_refused(folder, "train text.json --json --set data.path=pipe", 4, pipe_texts);
}
