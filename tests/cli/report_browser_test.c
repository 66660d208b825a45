/* report_browser_test.c: the page of a run and that of a comparison in a real browser: narrow and wide, light and dark, by
 * pointer-less keys, on paper. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define BROWSER                                                                                                        \
    "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars "            \
    "--user-data-dir=profile --enable-logging=stderr --virtual-time-budget=4000 "

/* Stands first in the page: what goes wrong later is kept. */
static const char watch[] = "<script>window.faults=[];addEventListener('error',(e)=>faults.push(e.message));</script>";

/* Stands last: presses keys in every chart and tells the page around it what it found. */
static const char probe[] =
    "<script>addEventListener('load',()=>{const tip=document.getElementById('tip');let told=0,zoomed=0;"
    "const frames=[...document.querySelectorAll('.frame')];for(const f of frames){f.focus();"
    "const press=(key)=>f.dispatchEvent(new KeyboardEvent('keydown',{key,bubbles:true}));"
    "press('ArrowRight');press('ArrowRight');if(tip.textContent&&tip.style.visibility==='visible')told++;"
    "const svg=f.querySelector('.draw svg,.row svg'),before=svg.getAttribute('viewBox');press('+');"
    "if(svg.getAttribute('viewBox')!==before)zoomed++;press('Escape');"
    "if(svg.getAttribute('viewBox')!==before)faults.push('Escape left '+f.closest('figure').id+' zoomed');f.blur();}"
    "const wide=[...document.querySelectorAll('body *')].filter((e)=>!e.closest('.scroll')&&!e.closest('svg')&&"
    "e.getBoundingClientRect().right>innerWidth+1).map((e)=>e.tagName+'.'+e.className);"
    "parent.postMessage('width='+innerWidth+' charts='+frames.length+' told='+told+' zoomed='+zoomed+' overflow='+"
    "(document.documentElement.scrollWidth>innerWidth?wide.slice(0,3).join():'none')+' paper='+"
    "getComputedStyle(document.body).backgroundColor+' faults='+(faults.join(';')||'none'),'*');});</script>";

static const char around[] =
    "<!DOCTYPE html><body><script>addEventListener('message',(e)=>{const "
    "p=document.createElement('p');p.textContent=e.data;"
    "document.body.append(p);});</script><iframe src='probed.html' width='360' height='2000'></iframe><iframe "
    "src='probed.html' width='320' height='2000'></iframe><iframe src='probed.html' width='1400' "
    "height='2000'></iframe>"
    "<iframe src='probed.html' width='2000' height='2000'></iframe></body>";

#define RUN        "train a.json --quiet --set steps=40 --set data.validation=0.2 --set checkpoint.path=run --report page.html"
#define COMPARISON "compare a.json --steps 30 --seeds 2 --rounds 1 --out page.html >table"

/* page.html, which `command` makes, and, with the scripts above, probed.html in `folder`. */
static void make_pages(const char *folder, const char *command)
{
    run_write_config(
        folder, "a.json",
        ", \"evaluate\": {\"every\": 5}, \"zero_optimization\": {\"offload_param\": {\"device\": \"cpu\"}, "
        "\"offload_optimizer\": {\"device\": \"cpu\"}}");
    run_must(folder, command);
    char path[4200];
    snprintf(path, sizeof path, "%s/page.html", folder);
    char *page = run_read(path), *head = strstr(page, "<head>"), *foot = strstr(page, "</body>");
    REQUIRE(head != NULL && foot != NULL);
    size_t room = strlen(page) + sizeof watch + sizeof probe;
    char *probed = malloc(room);
    snprintf(probed, room, "%.*s%s%.*s%s%s", (int)(head + 6 - page), page, watch, (int)(foot - head - 6), head + 6,
             probe, foot);
    run_write(folder, "probed.html", probed);
    run_write(folder, "around.html", around);
    free(probed);
    free(page);
}

/* Runs the browser in `folder`; its output, and what it logged, are in the files `dom` and `log`. */
static int browse(const char *folder, const char *arguments)
{
    char command[16384];
    snprintf(command, sizeof command, "cd '%s' && " BROWSER "%s >dom 2>log", folder, arguments);
    return system(command);
}

static char *read_in(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return run_read(path);
}

static bool has_browser(void)
{
    return system("command -v chromium >/dev/null 2>&1") == 0;
}

/* All charts of the page in `folder` answer to keys at every width and in both schemes, and nothing is too wide. */
static void check_in_browser(const char *folder, int charts)
{
    static const struct {
        const char *scheme, *paper;
    } schemes[] = { { "1", "rgb(255, 255, 255)" }, { "0", "rgb(20, 23, 27)" } };
    static const int widths[] = { 320, 360, 1400, 2000 };
    char arguments[9000], wanted[256];
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments,
                 "--blink-settings=preferredColorScheme=%s --window-size=2200,2000 --dump-dom 'file://%s/around.html'",
                 schemes[i].scheme, folder);
        CHECK_EQ(browse(folder, arguments), 0);
        char *dom = read_in(folder, "dom"), *log = read_in(folder, "log");
        for (int k = 0; k < 4; k++) {
            snprintf(wanted, sizeof wanted, "width=%d charts=%d told=%d zoomed=%d overflow=none paper=%s faults=none",
                     widths[k], charts, charts, charts, schemes[i].paper);
            CHECK_CONTAINS(dom, wanted);
        }
        CHECK_THAT(strstr(log, "CONSOLE") == NULL, "%s", log);
        free(dom);
        free(log);
    }
}

TEST(a_report_works_in_a_browser_narrow_and_wide_light_and_dark)
{
    char folder[4096];
    if (!has_browser()) SKIP(chromium, "there is no chromium");
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    make_pages(folder, RUN);
    check_in_browser(folder, 7); /* loss, rate, learning rate, norm, streams, two tiers */
}

TEST(the_page_of_a_comparison_works_in_a_browser_narrow_and_wide_light_and_dark)
{
    char folder[4096];
    if (!has_browser()) SKIP(chromium, "there is no chromium");
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    make_pages(folder, COMPARISON);
    check_in_browser(folder, 2); /* losses by step and by time */
}

TEST(a_report_is_drawn_and_printed_by_a_browser)
{
    char folder[4096], arguments[9000], path[4200];
    static const char *const made[] = { "page.png", "page.pdf" };
    struct stat info;
    if (!has_browser()) SKIP(chromium, "there is no chromium");
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    make_pages(folder, RUN);
    snprintf(arguments, sizeof arguments, "--window-size=1400,2400 --screenshot=page.png 'file://%s/page.html'",
             folder);
    CHECK_EQ(browse(folder, arguments), 0);
    snprintf(arguments, sizeof arguments, "--print-to-pdf=page.pdf 'file://%s/page.html'", folder);
    CHECK_EQ(browse(folder, arguments), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        CHECK_THAT(stat(path, &info) == 0 && info.st_size > 20000, "%s is missing or empty", made[i]);
    }
}
