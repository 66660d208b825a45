/* what_fits_cli_test.c: the tables of docs/finetune.md are what scripts/what-fits prints. */
#include <stdlib.h>
#include <string.h>

#include "support/run.h"
#include "test.h"

/* Standard output of a command of the shell; "" where it fails. The caller frees it. */
static char *output_of(const char *command)
{
    char *text = calloc(1, 1 << 16);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || text == NULL) return text;
    size_t bytes = fread(text, 1, (1 << 16) - 1, pipe);
    text[bytes] = '\0';
    if (pclose(pipe) != 0) text[0] = '\0';
    return text;
}

/* Every row of a model that the script prints stands in the page, LoRA before all weights. */
static int rows_in_order(char *printed, const char *page, const char *model)
{
    int rows = 0;
    char *rest = NULL;
    for (char *line = strtok_r(printed, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char whole[512];
        if (strstr(line, model) == NULL) continue;
        snprintf(whole, sizeof whole, "\n%s\n", line);
        const char *found = strstr(page, whole);
        CHECK_THAT(found != NULL, "docs/finetune.md has no row \"%s\" where the script has it", line);
        if (found == NULL) return rows;
        page = found + 1;
        rows++;
    }
    return rows;
}

TEST(the_tables_of_what_fits_are_those_that_the_script_prints)
{
    char command[2048];
    char *page = run_read(SLUICE_SOURCE_DIR "/docs/finetune.md");
    snprintf(command, sizeof command, "%s/scripts/what-fits %s Llama-3.2-3B", SLUICE_SOURCE_DIR, SLUICE_BINARY_DIR);
    char *printed = output_of(command);
    CHECK(rows_in_order(printed, strstr(page, "\nLoRA:\n") != NULL ? strstr(page, "\nLoRA:\n") : "",
                        "| Llama-3.2-3B |") == 2);
    free(printed);
    free(page);
}
