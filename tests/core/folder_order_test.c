/* folder_order_test.c: the folders of src/ are a pipeline; each includes only what the table lets it. */
#include <dirent.h>
#include <sys/stat.h>

#include "test.h"

/* One row per folder: what it may include beside itself and sluice.h. */
static const struct folder_rule {
    const char *folder;
    const char *may_include[16];
} rules[] = {
    { "core", { NULL } },
    { "format", { "core" } },
    { "data", { "core", "format" } },
    { "ir", { "core" } },
    { "optim", { "core", "ir" } },
    { "model", { "core", "ir", "format" } },
    { "plan", { "core", "ir" } },
    { "backend", { "core", "ir" } },
    { "comm", { "core", "ir", "backend" } },
    { "runtime", { "core", "ir", "plan", "backend", "comm" } },
    { "checkpoint", { "core", "format", "ir", "optim", "plan", "comm", "runtime" } },
    { "report", { "core", "format", "ir", "plan", "runtime" } },
    { "config", { "core", "format", "optim", "model", "data", "plan" } },
    { "machine", { "core", "format", "ir", "model", "plan", "backend", "comm" } },
    { "monitor", { "core", "format" } },
    { "train",
      { "core", "format", "data", "ir", "optim", "model", "plan", "backend", "comm", "runtime", "checkpoint", "report",
        "config", "machine", "monitor" } },
    { "cli", { NULL } },
};
enum { RULE_COUNT = sizeof rules / sizeof rules[0] };

static const struct folder_rule *rule_of(const char *folder, size_t length)
{
    for (int i = 0; i < RULE_COUNT; i++)
        if (strncmp(rules[i].folder, folder, length) == 0 && rules[i].folder[length] == '\0') return &rules[i];
    return NULL;
}

/* Whether a file of `rule`'s folder may include "path"; *why says why not. */
static bool may_include(const struct folder_rule *rule, const char *path, const char **why)
{
    if (strcmp(path, "sluice.h") == 0) return true;
    const char *slash = strchr(path, '/');
    *why = "includes are written from src/";
    if (slash == NULL) return false;
    const struct folder_rule *other = rule_of(path, (size_t)(slash - path));
    *why = "there is no such folder in src/";
    if (other == NULL) return false;
    *why = "that folder is not among those it may include";
    if (other == rule) return true;
    for (int i = 0; rule->may_include[i] != NULL; i++)
        if (strcmp(rule->may_include[i], other->folder) == 0) return true;
    return false;
}

/* The path of an #include "path" line, copied to out; false for every other line. */
static bool included_path(const char *line, char *out, size_t bytes)
{
    int end = -1;
    char path[256];
    line += strspn(line, " \t");
    if (*line++ != '#') return false;
    line += strspn(line, " \t");
    if (sscanf(line, "include \"%255[^\"]\"%n", path, &end) != 1 || end < 0) return false;
    snprintf(out, bytes, "%s", path);
    return true;
}

static int files_seen;

/* Names of the files so far: a name that occurs twice makes editor tabs and stack traces ambiguous. */
static char file_names[1024][64];

static void check_name(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    for (int i = 0; i < files_seen; i++)
        if (strcmp(file_names[i], name) == 0) test_fail(path, 1, "another folder of src/ has a file of this name");
    if (files_seen < 1024) snprintf(file_names[files_seen], sizeof file_names[0], "%.63s", name);
}

/* Names of the struct types so far: two types of one name cannot be included together, and mislead a reader. A device
 * is another struct in each backend, behind the same opaque name. */
static char type_names[2048][48];
static int types_seen;

static void check_type(const char *path, int number, const char *line)
{
    char name[48];
    int end = 0;
    if (strncmp(line, "typedef ", 8) == 0) line += 8;
    if (sscanf(line, "struct sl_%47[a-z0-9_] %n", name, &end) != 1 || line[end] != '{') return;
    if (strcmp(name, "device") == 0) return;
    for (int i = 0; i < types_seen; i++)
        if (strcmp(type_names[i], name) == 0) test_fail(path, number, "src/ has another struct sl_%s", name);
    if (types_seen < 2048) snprintf(type_names[types_seen++], sizeof type_names[0], "%s", name);
}

/* nvcc names kernels of unnamed namespaces after the path of their source, so that no build would repeat another
 * (backend/cuda/launch.cuh). */
static bool opens_unnamed_namespace(const char *line)
{
    char after;
    if (strncmp(line, "namespace", 9) != 0) return false;
    return sscanf(line + 9, " %c", &after) != 1 || after == '{' || after == '/';
}

static void check_file(const char *path, const struct folder_rule *rule)
{
    char line[1024], include[256];
    const char *why;
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        test_fail(__FILE__, __LINE__, "cannot read %s", path);
        return;
    }
    check_name(path);
    files_seen++;
    for (int number = 1; fgets(line, sizeof line, f) != NULL; number++) {
        if (included_path(line, include, sizeof include) && !may_include(rule, include, &why))
            test_fail(path, number, "folder order: %s/ must not include \"%s\": %s", rule->folder, include, why);
        check_type(path, number, line);
        if (opens_unnamed_namespace(line))
            test_fail(path, number, "unnamed namespace: use inline namespace SL_KERNELS");
    }
    fclose(f);
}

static bool is_source(const char *name)
{
    static const char *const endings[] = { ".c", ".h", ".cu", ".cuh" };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof endings[0]; i++)
        if (strcmp(dot, endings[i]) == 0) return true;
    return false;
}

/* Walks `path`; below src/ itself `rule` is NULL and each folder brings its own. */
static void check_folder(const char *path, const struct folder_rule *rule)
{
    DIR *dir = opendir(path);
    REQUIRE(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char child[2048];
        struct stat info;
        if (entry->d_name[0] == '.') continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (stat(child, &info) != 0) continue; /* an editor's file that is gone again */
        const struct folder_rule *its = rule != NULL ? rule : rule_of(entry->d_name, strlen(entry->d_name));
        if (S_ISDIR(info.st_mode) && its == NULL)
            test_fail(child, 1, "folder order: the folder is not in the table of this test");
        else if (S_ISDIR(info.st_mode))
            check_folder(child, its);
        else if (is_source(entry->d_name) && rule == NULL)
            test_fail(child, 1, "folder order: sources live in the folders of src/");
        else if (is_source(entry->d_name))
            check_file(child, rule);
    }
    closedir(dir);
}

TEST(folders_include_only_what_their_place_in_the_pipeline_allows_and_names_of_files_and_structs_are_unique)
{
    files_seen = 0;
    check_folder(SLUICE_SOURCE_DIR "/src", NULL);
    CHECK(files_seen > 20);
}

TEST(unnamed_namespaces_are_told_from_others)
{
    CHECK(opens_unnamed_namespace("namespace\n") && opens_unnamed_namespace("namespace {\n"));
    CHECK(opens_unnamed_namespace("namespace // why\n"));
    CHECK(!opens_unnamed_namespace("inline namespace SL_KERNELS\n") && !opens_unnamed_namespace("namespace sl\n"));
    CHECK(!opens_unnamed_namespace("} // namespace\n"));
}

TEST(folder_order_check_sees_breaches)
{
    static const struct {
        const char *folder, *line;
        bool fine;
    } rows[] = {
        { "core", "#include \"core/alloc.h\"\n", true },
        { "core", "#include <stdio.h>\n", true },
        { "core", "#include \"sluice.h\"\n", true },
        { "core", "  #  include \"ir/graph.h\"\n", false },
        { "ir", "#include \"plan/plan.h\"\n", false },
        { "plan", "#include \"ir/graph.h\" /* why */\n", true },
        { "plan", "#include \"backend/backend.h\"\n", false },
        { "cli", "#include \"core/status.h\"\n", false },
        { "cli", "#include \"cli/cli.h\"\n", true },
        { "train", "#include \"checkpoint/checkpoint.h\"\n", true },
        { "train", "#include \"cli/cli.h\"\n", false },
        { "plan", "#include \"internal.h\"\n", false },
        { "plan", "#include \"planet/plan.h\"\n", false },
        { "plan", "// #include \"backend/backend.h\"\n", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char include[256];
        const char *why;
        const struct folder_rule *rule = rule_of(rows[i].folder, strlen(rows[i].folder));
        REQUIRE(rule != NULL);
        bool fine = !included_path(rows[i].line, include, sizeof include) || may_include(rule, include, &why);
        if (fine != rows[i].fine) test_fail(__FILE__, __LINE__, "%s: %s", rows[i].folder, rows[i].line);
    }
}
