/* update_kernels_test.c: the update kernels keep their promise of equal bits: over instruction paths, threads and cuts, for every
 * kind of number. */
#include "backend/cpu/kernels/leaf_norm.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/norm_nodes.h"
#include "ir/form.h"
#include "support/optim_fixture.h"
#include "support/sanitized.h"

#define BLOCK ((int64_t)1 << 20)
#if SANITIZED
#define BLOCK_COUNT 1 /* instrumented loops are many times slower; the arithmetic is the same */
#else
#define BLOCK_COUNT 16 /* 2^24 inputs for every rule */
#endif

/* Weights, gradients and three state slots of one flat buffer. */
enum { GRADIENT, WEIGHT, SLOT, ARRAYS = SLOT + SL_MAX_STATE_SLOTS };
typedef struct arrays {
    float *x[ARRAYS];
} arrays;

static bool arrays_open(arrays *a, int64_t n)
{
    memset(a, 0, sizeof *a);
    for (int k = 0; k < ARRAYS; k++)
        if ((a->x[k] = sl_alloc_array((size_t)n, sizeof(float), "test array")) == NULL) return false;
    return true;
}

static void arrays_close(arrays *a)
{
    for (int k = 0; k < ARRAYS; k++) sl_free(a->x[k]);
}

static void arrays_copy(arrays *to, const arrays *from, int64_t n)
{
    for (int k = 0; k < ARRAYS; k++) memcpy(to->x[k], from->x[k], (size_t)n * sizeof(float));
}

/* A float of one of eight classes: zeros, denormals, huge, tiny, ordinary, any finite bits. */
static float awkward(uint32_t seed, uint32_t i)
{
    uint32_t bits = hash_bits(seed, i), class = hash_bits(seed + 7919, i) & 7;
    float x;
    if (class == 0) bits &= 0x80000000u;
    if (class == 1) bits &= 0x807fffffu;
    if (class == 2) bits = (bits & 0x80ffffffu) | 0x7e000000u;
    if (class == 3) bits = (bits & 0x81ffffffu) | 0x00800000u;
    if ((bits & 0x7f800000u) == 0x7f800000u) bits &= 0xbfffffffu; /* no infinity, no NaN */
    if (class >= 5) return hashed(seed, i);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Second moments are not negative; some have overflowed. */
static void fill_awkward(arrays *a, int64_t n, uint32_t seed)
{
    for (int k = 0; k < ARRAYS; k++)
        for (int64_t i = 0; i < n; i++) {
            float x = awkward(seed * 16 + (uint32_t)k, (uint32_t)i);
            if (k > SLOT) x = hash_bits(seed, (uint32_t)i) % 1000 == 0 ? INFINITY : fabsf(x);
            a->x[k][i] = x;
        }
}

static void fill_ordinary(arrays *a, int64_t n)
{
    for (int k = 0; k < ARRAYS; k++)
        for (int64_t i = 0; i < n; i++)
            a->x[k][i] = k > SLOT ? fabsf(hashed((uint32_t)k, (uint32_t)i)) : hashed((uint32_t)k, (uint32_t)i);
}

/* Ten parameters that start anywhere, in two groups; the last leaves a gap before it. */
static int ragged_segments(sl_update_segment *s, int64_t n)
{
    static const int64_t counts[] = { 1, 77, 1025, 5000, 3, 16, 100000, 1024, 31 };
    int64_t at = 0;
    int made = 0;
    for (; made < 9 && at + counts[made] < n; made++) {
        s[made] = (sl_update_segment)SEGMENT(at, counts[made], made % 3 == 2);
        at += counts[made];
    }
    s[made] = (sl_update_segment)SEGMENT(at + 5, n - at - 5, 0);
    return made + 1;
}

/* A copy for a rule: where its first slot is a sum of squares, that is not negative either. Infinities are for sums of
 * squares: with a momentum or a mean they would make a NaN, whose sign differs between processors. */
static void arrays_copy_for(const sl_update_rule *rule, arrays *to, const arrays *from, int64_t n)
{
    arrays_copy(to, from, n);
    for (int64_t i = 0; i < n && !sl_slot_is_signed(rule->kind, 0); i++) to->x[SLOT][i] = fabsf(to->x[SLOT][i]);
    for (int k = 1; k < sl_updates[rule->kind].slots; k++)
        for (int64_t i = 0; i < n && sl_slot_is_signed(rule->kind, k); i++)
            if (isinf(to->x[SLOT + k][i])) to->x[SLOT + k][i] = 1;
}

/* Elements [first, first + n) of the buffer; norm: NULL where there is none. */
static void run_with(const sl_kernel *kernels, sl_pool *pool, const sl_update_rule *rule, const sl_run_context *run,
                     arrays *a, int64_t first, int64_t n, sl_norm_result *norm)
{
    sl_attrs attrs = { .update = rule };
    sl_kernel_args args = { .attrs = &attrs, .context = run, .pool = pool, .first = first };
    args.in[0] = (sl_tensor){ a->x[GRADIENT] + first, NULL, n, SL_FORM_F32 };
    if (norm != NULL) args.in[1] = (sl_tensor){ norm, NULL, (int64_t)(sizeof *norm / 4), SL_FORM_F32 };
    args.out[0] = (sl_tensor){ a->x[WEIGHT] + first, NULL, n, SL_FORM_F32 };
    for (int k = 0; k < sl_updates[rule->kind].slots; k++)
        args.out[2 + k] = (sl_tensor){ a->x[SLOT + k] + first, NULL, n, SL_FORM_F32 };
    kernels[SL_OP_UPDATE](&args);
}

static void run_part(const sl_kernel *kernels, sl_pool *pool, const sl_update_rule *rule, const sl_run_context *run,
                     arrays *a, int64_t first, int64_t n, sl_norm_result norm)
{
    run_with(kernels, pool, rule, run, a, first, n, &norm);
}

static void run_update(const sl_kernel *kernels, sl_pool *pool, const sl_update_rule *rule, arrays *a, int64_t n,
                       sl_norm_result norm)
{
    sl_run_context run = { 0 };
    fill_groups(&run);
    run_part(kernels, pool, rule, &run, a, 0, n, norm);
}

static void compare_arrays(const char *what, const char *path, const arrays *a, const arrays *b, int64_t n)
{
    for (int k = 0; k < ARRAYS; k++) {
        if (memcmp(a->x[k], b->x[k], (size_t)n * sizeof(float)) == 0) continue;
        int64_t i = 0;
        while (memcmp(&a->x[k][i], &b->x[k][i], sizeof(float)) == 0) i++;
        test_fail(__FILE__, __LINE__, "%s %s: array %d element %lld: %a and %a", what, path, k, (long long)i,
                  (double)a->x[k][i], (double)b->x[k][i]);
    }
}

static const sl_norm_result clipped = { 3.0, 0.37f, 1 };

TEST(update_kernels_of_all_paths_give_the_same_bits)
{
    arrays input, expected, got;
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    REQUIRE(arrays_open(&input, BLOCK) && arrays_open(&expected, BLOCK) && arrays_open(&got, BLOCK));
    sl_update_segment segments[10];
    int count = ragged_segments(segments, BLOCK);
    for (uint32_t block = 0; block < BLOCK_COUNT; block++) {
        fill_awkward(&input, BLOCK, block + 1);
        for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
            sl_update_rule rule = { .kind = (sl_update_kind)v };
            rule.segments = segments;
            rule.segment_count = count;
            arrays_copy_for(&rule, &expected, &input, BLOCK);
            run_update(sl_kernels_scalar[SL_KERNEL_F32], pool, &rule, &expected, BLOCK, clipped);
            if (memcmp(expected.x[WEIGHT], input.x[WEIGHT], BLOCK * sizeof(float)) == 0)
                test_fail(__FILE__, __LINE__, "nothing done");
            for (int path = SL_ISA_AVX2; path < PATH_COUNT; path++) {
                bool slow = path == PATH_CUDA || path == PATH_CUDA_SHIFTED; /* emulated threads */
                if (kernels_on(path) == NULL || (slow && block > 0)) continue;
                arrays_copy_for(&rule, &got, &input, BLOCK);
                run_update(kernels_on(path), pool, &rule, &got, BLOCK, clipped);
                compare_arrays(sl_updates[v].name, path_name(path), &expected, &got, BLOCK);
            }
        }
    }
    arrays_close(&input);
    arrays_close(&expected);
    arrays_close(&got);
    sl_pool_destroy(pool);
}

TEST(update_bits_do_not_depend_on_threads_or_on_neighbouring_segments)
{
    const int64_t n = 300000;
    arrays input, expected, got;
    sl_pool *one, *three;
    REQUIRE_OK(sl_pool_create(1, &one));
    REQUIRE_OK(sl_pool_create(3, &three));
    REQUIRE(arrays_open(&input, n) && arrays_open(&expected, n) && arrays_open(&got, n));
    fill_ordinary(&input, n);
    sl_update_segment whole = SEGMENT(0, n, 0), halves[2] = { SEGMENT(0, 100001, 0), SEGMENT(100001, n - 100001, 0) };
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = { .kind = (sl_update_kind)v };
        rule.segments = &whole;
        rule.segment_count = 1;
        arrays_copy(&expected, &input, n);
        arrays_copy(&got, &input, n);
        run_update(kernels_of(sl_isa_best()), one, &rule, &expected, n, clipped);
        run_update(kernels_of(sl_isa_best()), three, &rule, &got, n, clipped);
        compare_arrays(sl_updates[v].name, "threads", &expected, &got, n);
        if (sl_updates[rule.kind].whole_parameters) continue; /* a parameter is a unit there */
        rule.segments = halves;
        rule.segment_count = 2;
        arrays_copy(&got, &input, n);
        run_update(kernels_of(sl_isa_best()), three, &rule, &got, n, clipped);
        compare_arrays(sl_updates[v].name, "halves", &expected, &got, n);
    }
    arrays_close(&input);
    arrays_close(&expected);
    arrays_close(&got);
    sl_pool_destroy(one);
    sl_pool_destroy(three);
}

/* Weights that changed inside the two segments; reports whatever changed outside, and gradients that changed
 * anywhere. */
static int64_t moved_inside(const char *what, const sl_update_segment *s, const arrays *before, const arrays *after,
                            int64_t n)
{
    int64_t moved = 0;
    for (int k = 0; k < ARRAYS; k++)
        for (int64_t i = 0; i < n; i++) {
            bool inside = (i >= s[0].offset && i < s[0].offset + s[0].count) ||
                          (i >= s[1].offset && i < s[1].offset + s[1].count);
            if (after->x[k][i] == before->x[k][i]) continue;
            if (!inside || k == GRADIENT)
                test_fail(__FILE__, __LINE__, "%s: array %d element %lld", what, k, (long long)i);
            moved += k == WEIGHT;
        }
    return moved;
}

TEST(an_update_touches_only_its_segments)
{
    const int64_t n = 70000;
    arrays input, got;
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    REQUIRE(arrays_open(&input, n) && arrays_open(&got, n));
    fill_ordinary(&input, n);
    sl_update_segment segments[2] = { SEGMENT(3, 40000, 0), SEGMENT(40010, 20001, 1) };
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = { .kind = (sl_update_kind)v };
        rule.segments = segments;
        rule.segment_count = 2;
        for (int path = sl_isa_best(); path < PATH_COUNT; path++) {
            if (kernels_on(path) == NULL) continue;
            arrays_copy(&got, &input, n);
            run_update(kernels_on(path), pool, &rule, &got, n, clipped);
            CHECK(moved_inside(sl_updates[v].name, segments, &input, &got, n) >
                  59000); /* of 60,001; a step may be below half an ulp */
        }
    }
    arrays_close(&input);
    arrays_close(&got);
    sl_pool_destroy(pool);
}

TEST(an_update_does_nothing_when_the_norm_is_not_finite)
{
    const int64_t n = 5000;
    arrays input, got;
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(1, &pool));
    REQUIRE(arrays_open(&input, n) && arrays_open(&got, n));
    fill_ordinary(&input, n);
    input.x[GRADIENT][4999] = NAN;
    sl_update_segment whole = SEGMENT(0, n, 0);
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = { .kind = (sl_update_kind)v };
        rule.segments = &whole;
        rule.segment_count = 1;
        for (int path = sl_isa_best(); path < PATH_COUNT; path++) {
            if (kernels_on(path) == NULL) continue;
            arrays_copy(&got, &input, n);
            run_update(kernels_on(path), pool, &rule, &got, n, (sl_norm_result){ NAN, 0.0f, 0 });
            compare_arrays(sl_updates[v].name, "skipped", &input, &got, n);
        }
    }
    arrays_close(&input);
    arrays_close(&got);
    sl_pool_destroy(pool);
}

/* Where nothing of the whole gradient decides, updates are given nothing of it. */
TEST(an_update_without_a_norm_is_one_with_the_factor_1)
{
    const int64_t n = 5000;
    arrays input, expected, got;
    sl_run_context run = { 0 };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(1, &pool));
    REQUIRE(arrays_open(&input, n) && arrays_open(&expected, n) && arrays_open(&got, n));
    fill_ordinary(&input, n);
    fill_groups(&run);
    sl_update_segment whole = SEGMENT(0, n, 0);
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = { .kind = (sl_update_kind)v };
        rule.segments = &whole;
        rule.segment_count = 1;
        arrays_copy_for(&rule, &expected, &input, n);
        run_part(sl_kernels_scalar[SL_KERNEL_F32], pool, &rule, &run, &expected, 0, n,
                 (sl_norm_result){ 3.0, 1.0f, 1 });
        for (int path = SL_ISA_SCALAR; path < PATH_COUNT; path++) {
            if (kernels_on(path) == NULL) continue;
            arrays_copy_for(&rule, &got, &input, n);
            run_with(kernels_on(path), pool, &rule, &run, &got, 0, n, NULL);
            compare_arrays(sl_updates[v].name, path_name(path), &expected, &got, n);
        }
    }
    arrays_close(&input);
    arrays_close(&expected);
    arrays_close(&got);
    sl_pool_destroy(pool);
}

/* ---- Norms, against the definition written out ---- */

static double plain_leaf(const float *x, int64_t n)
{
    double lane[16] = { 0 };
    for (int64_t i = 0; i < n; i++) lane[i % 16] += (double)x[i] * (double)x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static double plain_tree(const double *leaves, int64_t lo, int64_t hi)
{
    if (hi - lo == 1) return leaves[lo];
    int64_t half = 1;
    while (half * 2 < hi - lo) half *= 2;
    return plain_tree(leaves, lo, lo + half) + plain_tree(leaves, lo + half, hi);
}

TEST(norm_leaves_are_sixteen_lanes_in_fp64_on_every_path)
{
    static const int64_t sizes[] = { 1, 15, 16, 17, 77, 1023, 1024, 1025, 2048, 5000, 40000, 100001 };
    float *x = sl_alloc_array(100001, sizeof *x, "test gradient");
    double *leaves = sl_alloc_array(98, sizeof *leaves, "test leaves");
    sl_pool *pool;
    REQUIRE(x != NULL && leaves != NULL);
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int path = 0; path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int64_t n = sizes[s], count = sl_ceil_div(n, 1024);
            sl_kernel_args a = { .pool = pool };
            for (int64_t i = 0; i < n; i++)
                x[i] = s % 2 ? awkward((uint32_t)n, (uint32_t)i) : hashed((uint32_t)n, (uint32_t)i);
            a.in[0] = (sl_tensor){ x, NULL, n, SL_FORM_F32 };
            a.out[0] = (sl_tensor){ leaves, NULL, count, SL_FORM_F32 };
            kernels_on(path)[SL_OP_NORM_LEAVES](&a);
            for (int64_t l = 0; l < count; l++) {
                int64_t left = n - l * 1024;
                CHECK(leaves[l] == plain_leaf(x + l * 1024, left < 1024 ? left : 1024));
            }
        }
    }
    sl_free(x);
    sl_free(leaves);
    sl_pool_destroy(pool);
}

/* By the threads of a pool, which more leaves than a chunk are for. */
static sl_norm_result finish_by(sl_pool *pool, const sl_kernel *kernels, double *leaves, int64_t count, double clip,
                                double loss_scale)
{
    sl_norm_result result = { 0 };
    sl_run_context run = { .clip = clip, .loss_scale = loss_scale };
    sl_kernel_args a = { .pool = pool, .context = &run };
    a.in[0] = (sl_tensor){ leaves, NULL, count, SL_FORM_F32 };
    a.out[0] = (sl_tensor){ &result, NULL, (int64_t)(sizeof result / 4), SL_FORM_F32 };
    kernels[SL_OP_NORM_FINISH](&a);
    return result;
}

static sl_norm_result finish(const sl_kernel *kernels, double *leaves, int64_t count, double clip, double loss_scale)
{
    return finish_by(NULL, kernels, leaves, count, clip, loss_scale);
}

TEST(leaves_add_up_in_a_pairwise_tree_by_index)
{
    enum { MOST = 1100000 };
    static double leaves[MOST];
    static const int64_t many[] = { 4095, 4096, 4097, 8192, 12345, 300001, 1048576, 1048577, MOST };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (uint32_t i = 0; i < MOST; i++) leaves[i] = fabs((double)hashed(5, i)) * pow(10.0, (double)(i % 17) - 8.0);
    for (int path = 0; path < PATH_COUNT; path++) {
        const sl_kernel *kernels = kernels_on(path);
        if (kernels == NULL) continue;
        for (int64_t m = 1; m < 4000; m += m < 130 ? 1 : 487)
            CHECK(finish(kernels, leaves, m, 0.0, 1.0).norm == sqrt(plain_tree(leaves, 0, m)));
        for (size_t k = 0; k < sizeof many / sizeof many[0]; k++)
            CHECK(finish_by(pool, kernels, leaves, many[k], 0.0, 1.0).norm == sqrt(plain_tree(leaves, 0, many[k])));
    }
    sl_pool_destroy(pool);
}

/* Leaves in the runs of several owners -> the nodes of all, in order. Returns how many there are. */
static int64_t combine_runs(const sl_kernel *kernels, sl_pool *pool, double *leaves, int64_t count, uint32_t seed,
                            sl_norm_node *nodes)
{
    int64_t made = 0;
    uint32_t k = 0;
    for (int64_t first = 0, end; first < count; first = end) {
        int64_t most = k++ % 3 == 0 ? 9 : 3 * SL_NORM_CHUNK;
        end = first + 1 + (int64_t)(fabs((double)hashed(seed, k)) * 1e6) % most;
        if (end > count) end = count;
        sl_kernel_args a = { .pool = pool, .first = first * SL_CUT_ELEMENTS };
        a.in[0] = (sl_tensor){ leaves + first, NULL, end - first, SL_FORM_F32 };
        a.out[0] = (sl_tensor){ nodes + made, NULL, sl_norm_node_count(first, end), SL_FORM_F32 };
        kernels[SL_OP_NORM_COMBINE](&a);
        made += a.out[0].elements;
    }
    return made;
}

/* What ranks exchange instead of leaves adds up to the same bits, whoever owns which run of them. */
TEST(nodes_of_any_runs_of_leaves_add_up_as_the_leaves_do)
{
    enum { MOST = 30000 };
    static double leaves[MOST], sums[MOST / SL_NORM_CHUNK + 1];
    static sl_norm_node nodes[MOST];
    static const int64_t counts[] = { 1, 2, 3, 100, 4095, 4096, 4097, 8192, 12345, MOST };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (uint32_t i = 0; i < MOST; i++) leaves[i] = fabs((double)hashed(6, i)) * pow(10.0, (double)(i % 17) - 8.0);
    for (int path = 0; path < PATH_COUNT; path++) {
        const sl_kernel *kernels = kernels_on(path);
        for (uint32_t k = 0; kernels != NULL && k < 2 * sizeof counts / sizeof counts[0]; k++) {
            int64_t count = counts[k / 2], made = combine_runs(kernels, pool, leaves, count, k, nodes);
            sl_kernel_args a = { .pool = pool };
            a.in[0] = (sl_tensor){ nodes, NULL, made, SL_FORM_F32 };
            a.out[0] = (sl_tensor){ sums, NULL, sl_ceil_div(count, SL_NORM_CHUNK), SL_FORM_F32 };
            kernels[SL_OP_NORM_JOIN](&a);
            for (int64_t c = 0, end; c < a.out[0].elements; c++) {
                end = (c + 1) * SL_NORM_CHUNK < count ? (c + 1) * SL_NORM_CHUNK : count;
                CHECK(sums[c] == plain_tree(leaves, c * SL_NORM_CHUNK, end));
            }
            CHECK(finish(kernels, sums, a.out[0].elements, 0.0, 1.0).norm == sqrt(plain_tree(leaves, 0, count)));
        }
    }
    sl_pool_destroy(pool);
}

TEST(a_loss_scale_that_is_no_number_keeps_every_update_from_changing_anything)
{
    double nine[1] = { 9.0 };
    for (int path = 0; path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        sl_norm_result result = finish(kernels_on(path), nine, 1, 1.0, (double)NAN);
        CHECK_EQ(result.finite, 0);
        CHECK(result.factor == 0.0f);
        CHECK_EQ(finish(kernels_on(path), nine, 1, 1.0, 1.0).finite, 1);
    }
}

TEST(the_factor_unscales_and_clips_as_torch_does)
{
    double nine[1] = { 9.0 }, none[1] = { 0.0 };
    for (int path = 0; path < PATH_COUNT; path++) {
        const sl_kernel *k = kernels_on(path);
        if (k == NULL) continue;
        CHECK(finish(k, nine, 1, 0.0, 1.0).factor == 1.0f);
        CHECK(finish(k, nine, 1, 5.0, 1.0).factor == 1.0f);
        CHECK(finish(k, nine, 1, 1.5, 1.0).factor == (float)(1.5 / (3.0 + 1e-6)));
        sl_norm_result scaled = finish(k, nine, 1, 0.25, 8.0);
        CHECK(scaled.norm == 0.375 && scaled.factor == (float)(0.25 / (0.375 + 1e-6) / 8.0));
        CHECK(finish(k, none, 1, 1.0, 1.0).factor == 1.0f && finish(k, none, 1, 1.0, 1.0).norm == 0.0);
    }
}

TEST(one_bad_element_is_seen_and_huge_finite_ones_are_not_bad)
{
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(1, &pool));
    static float x[3000];
    static const float last[] = { 1.0f, 3.4e38f, INFINITY, -INFINITY, NAN };
    for (int path = 0; path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        for (int bad = 0; bad < 5; bad++) {
            double leaves[3];
            for (int i = 0; i < 3000; i++) x[i] = bad == 1 ? 3.4e38f : 0.5f;
            x[2999] = last[bad];
            sl_kernel_args a = { .pool = pool };
            a.in[0] = (sl_tensor){ x, NULL, 3000, SL_FORM_F32 };
            a.out[0] = (sl_tensor){ leaves, NULL, 3, SL_FORM_F32 };
            kernels_on(path)[SL_OP_NORM_LEAVES](&a);
            CHECK_EQ(finish(kernels_on(path), leaves, 3, 1.0, 1.0).finite, bad < 2);
        }
    }
    sl_pool_destroy(pool);
}

TEST(accumulation_copies_the_first_micro_batch_and_adds_the_others)
{
    enum { N = 70001 };
    static float x[N], sum[N];
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int path = 0; path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        for (int i = 0; i < N; i++) sum[i] = NAN;
        for (uint32_t micro = 0; micro < 3; micro++) {
            sl_run_context run = { .micro = micro };
            sl_kernel_args a = { .context = &run, .pool = pool };
            for (int i = 0; i < N; i++) x[i] = hashed(micro, (uint32_t)i);
            a.in[0] = (sl_tensor){ x, NULL, N, SL_FORM_F32 };
            a.out[0] = (sl_tensor){ sum, NULL, N, SL_FORM_F32 };
            kernels_on(path)[SL_OP_ACCUMULATE](&a);
        }
        for (uint32_t i = 0; i < N; i++) CHECK(sum[i] == (hashed(0, i) + hashed(1, i)) + hashed(2, i));
    }
    sl_pool_destroy(pool);
}

/* ---- LAMB and LARS over whole parameters ---- */

/* Sum of the leaves first <= i < end of the fixed tree over [lo, lo + size), size a power of two; -1: none of them
 * exists. */
static double index_tree(const double *leaves, int64_t first, int64_t end, int64_t lo, int64_t size)
{
    if (lo >= end || lo + size <= first) return -1.0;
    if (size == 1) return leaves[lo];
    double left = index_tree(leaves, first, end, lo, size / 2),
           right = index_tree(leaves, first, end, lo + size / 2, size / 2);
    if (left < 0.0) return right;
    return right < 0.0 ? left : left + right;
}

/* Norm squared of elements [offset, offset + count) cut at multiples of 1,024 of the flat buffer x. */
static double plain_norm(const float *x, int64_t offset, int64_t count, double *leaves)
{
    int64_t first = offset / 1024, end = sl_ceil_div(offset + count, 1024), size = 1;
    for (int64_t l = first; l < end; l++) {
        int64_t lo = l * 1024 > offset ? l * 1024 : offset, hi = (l + 1) * 1024;
        if (hi > offset + count) hi = offset + count;
        leaves[l] = plain_leaf(x + lo, hi - lo);
    }
    while (size < end) size *= 2;
    return index_tree(leaves, first, end, 0, size);
}

/* One LARS step by the book on a copy; the norms are the only sums, and they round to the same float. */
static void check_lars(int path, int64_t offset, int64_t count, int threads)
{
    int64_t n = offset + count;
    arrays a;
    sl_pool *pool;
    float *scaled = sl_alloc_array((size_t)n, sizeof *scaled, "test"),
          *w = sl_alloc_array((size_t)n, sizeof *w, "test");
    double *leaves = sl_alloc_array((size_t)n / 1024 + 1, sizeof *leaves, "test");
    REQUIRE(scaled != NULL && w != NULL && leaves != NULL && arrays_open(&a, n));
    REQUIRE_OK(sl_pool_create(threads, &pool));
    fill_ordinary(&a, n);
    memcpy(w, a.x[WEIGHT], (size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++) scaled[i] = a.x[GRADIENT][i] * clipped.factor;
    sl_run_context run = { 0 };
    fill_groups(&run);
    const sl_group_scalars *s = &run.groups[0];
    double norm = sqrt(plain_norm(w, offset, count, leaves)),
           gradient = sqrt(plain_norm(scaled, offset, count, leaves));
    float rate = s->rate * (float)((double)s->trust * norm / (gradient + (double)s->weight_decay * norm));
    for (int64_t i = offset; i < n; i++) w[i] = fmaf(-rate, fmaf(s->weight_decay, w[i], scaled[i]), w[i]);
    sl_update_segment segment = SEGMENT(offset, count, 0);
    sl_update_rule rule = { .kind = SL_UPDATE_lars_plain, .segments = &segment, .segment_count = 1 };
    run_update(kernels_on(path), pool, &rule, &a, n, clipped);
    CHECK(memcmp(w, a.x[WEIGHT], (size_t)n * sizeof *w) == 0);
    arrays_close(&a);
    sl_pool_destroy(pool);
    sl_free(scaled);
    sl_free(w);
    sl_free(leaves);
}

/* Adding leaves one by one, and adding the sums of aligned runs of eight, both give the tree that hangs on the
 * index. */
TEST(leaf_trees_hang_on_the_index_wherever_they_start)
{
    static double leaves[256];
    for (uint32_t i = 0; i < 256; i++) leaves[i] = fabs((double)hashed(9, i)) * pow(10.0, (double)(i % 13) - 6.0);
    for (int64_t first = 0; first < 60; first++)
        for (int64_t end = first + 1; end < 256; end += 3) {
            sl_leaf_tree one_by_one = { .pending = 0 }, by_runs = { .pending = 0 };
            double expected = index_tree(leaves, first, end, 0, 256);
            for (int64_t i = first; i < end; i++) sl_leaf_tree_add(&one_by_one, i, leaves[i]);
            for (int64_t run = first / 8; run * 8 < end; run++) {
                sl_leaf_tree inner = { .pending = 0 };
                for (int64_t i = run * 8; i < run * 8 + 8; i++)
                    if (i >= first && i < end) sl_leaf_tree_add(&inner, i, leaves[i]);
                sl_leaf_tree_add(&by_runs, run, sl_leaf_tree_sum(&inner));
            }
            CHECK(sl_leaf_tree_sum(&one_by_one) == expected);
            CHECK(sl_leaf_tree_sum(&by_runs) == expected);
        }
}

TEST(a_parameter_that_starts_anywhere_is_scaled_by_its_own_norms)
{
    for (int path = sl_isa_best(); path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        check_lars(path, 0, 1, 1);
        check_lars(path, 5, 77, 1);
        check_lars(path, 1000, 1025, 1);
        check_lars(path, 3000, 5000, 2);
        check_lars(path, 70001, 200003, 2);
    }
}

TEST(a_parameter_larger_than_one_round_is_scaled_by_all_of_it)
{
    for (int path = sl_isa_best(); path < PATH_COUNT; path++)
        if (kernels_on(path) != NULL) check_lars(path, 40000, (int64_t)257 * 32768 + 123, 2);
}

/* Parameters whose norms differ by powers of two, in parts of a layer that begin at leaves 0, 3 and 9. Parameter
 * DELICATE is so made that its rate is 1 + 2^-23 in the tree that hangs on the leaf's number in the layer, where its
 * two small leaves meet before they reach the large one, and 1 in a tree that hangs on the number in the part. */
enum { PART_ELEMENTS = 16 * 1024 + 500, PART_PARAMETERS = 8, DELICATE = 3, DELICATE_STEP = 3072 + 10 };
static const int64_t part_ends[] = { 3072, 9 * 1024, PART_ELEMENTS };
static const sl_update_segment part_segments[PART_PARAMETERS] = {
    SEGMENT(0, 700, 0),     SEGMENT(700, 1500, 1), SEGMENT(2205, 800, 0),  SEGMENT(3072, 3067, 0),
    SEGMENT(6139, 2200, 1), SEGMENT(8400, 1, 0),   SEGMENT(9220, 5000, 0), SEGMENT(14220, PART_ELEMENTS - 14220, 1)
};

static void fill_parts(arrays *a)
{
    fill_ordinary(a, PART_ELEMENTS);
    for (int p = 0; p < PART_PARAMETERS; p++)
        for (int64_t i = 0; i < part_segments[p].count; i++) {
            a->x[WEIGHT][part_segments[p].offset + i] *= ldexpf(1.0f, p % 5 - 2);
            a->x[GRADIENT][part_segments[p].offset + i] *= ldexpf(1.0f, p % 3);
        }
    float *w = a->x[WEIGHT] + part_segments[DELICATE].offset, *g = a->x[GRADIENT] + part_segments[DELICATE].offset;
    memset(w, 0, (size_t)part_segments[DELICATE].count * sizeof *w);
    memset(g, 0, (size_t)part_segments[DELICATE].count * sizeof *g);
    w[0] = 1.0f; /* squares of the first leaf: (1 + 2^-24)^2 + 2^-52 */
    w[1] = w[2] = 0x1p-12f;
    w[3] = 0x1p-24f;
    w[4] = 0x1p-26f;
    w[1024] = w[2048] = 0.7f * 0x1p-26f; /* their squares: half an ulp of that, but for a little */
    g[DELICATE_STEP - part_segments[DELICATE].offset] = 1.0f;
}

static void fill_part_groups(sl_run_context *run)
{
    fill_groups(run);
    run->groups[0].rate = run->groups[0].trust = 1.0f;
    run->groups[0].weight_decay = 0.0f;
}

/* LARS without momentum by the book; the factor of the norm is 1. */
static void check_rates(const sl_run_context *run, const arrays *input, const arrays *got)
{
    static double leaves[PART_ELEMENTS / 1024 + 1];
    for (int p = 0; p < PART_PARAMETERS; p++) {
        const sl_update_segment *q = &part_segments[p];
        const sl_group_scalars *s = &run->groups[q->group];
        double norm = sqrt(plain_norm(input->x[WEIGHT], q->offset, q->count, leaves)),
               gradient = sqrt(plain_norm(input->x[GRADIENT], q->offset, q->count, leaves));
        float rate = s->rate * (float)((double)s->trust * norm / (gradient + (double)s->weight_decay * norm));
        for (int64_t i = q->offset; i < q->offset + q->count; i++) {
            float w = input->x[WEIGHT][i];
            CHECK(got->x[WEIGHT][i] == fmaf(-rate, fmaf(s->weight_decay, w, input->x[GRADIENT][i]), w));
        }
    }
    CHECK(got->x[WEIGHT][DELICATE_STEP] == -(1.0f + 0x1p-23f));
}

TEST(parameters_in_parts_of_a_layer_are_scaled_by_their_own_norms)
{
    const sl_norm_result plain = { 1.0, 1.0f, 1 };
    arrays input, expected, got;
    sl_run_context run = { 0 };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    REQUIRE(arrays_open(&input, PART_ELEMENTS) && arrays_open(&expected, PART_ELEMENTS));
    REQUIRE(arrays_open(&got, PART_ELEMENTS));
    fill_parts(&input);
    fill_part_groups(&run);
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = { .kind = (sl_update_kind)v };
        if (!sl_updates[rule.kind].whole_parameters) continue;
        rule.segments = part_segments;
        rule.segment_count = PART_PARAMETERS;
        arrays_copy(&expected, &input, PART_ELEMENTS);
        run_part(sl_kernels_scalar[SL_KERNEL_F32], pool, &rule, &run, &expected, 0, PART_ELEMENTS, plain);
        if (sl_updates[v].slots == 0) check_rates(&run, &input, &expected);
        for (int path = 0; path < PATH_COUNT; path++) {
            if (kernels_on(path) == NULL) continue;
            arrays_copy(&got, &input, PART_ELEMENTS);
            for (int64_t part = 0, first = 0; part < 3; first = part_ends[part++])
                run_part(kernels_on(path), pool, &rule, &run, &got, first, part_ends[part] - first, plain);
            compare_arrays(sl_updates[v].name, path_name(path), &expected, &got, PART_ELEMENTS);
        }
    }
    arrays_close(&input);
    arrays_close(&expected);
    arrays_close(&got);
    sl_pool_destroy(pool);
}
