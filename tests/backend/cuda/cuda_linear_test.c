/* cuda_linear_test.c: the CUDA backend's matrix products on the emulation (linear_checks.h), and how they are cut. */
#include "test.h"

#include "support/cuda/linear_checks.h"

static void *take(size_t bytes)
{
    return aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void nothing(void)
{
}

static void complain(const char *text)
{
    test_fail(__FILE__, __LINE__, "%s", text);
}

static void with_checks(void (*run)(const checks *))
{
    checks c = { .alloc = take, .release = free, .finish = nothing, .fail = complain, .product_error = 0x1p-24 };
    REQUIRE_OK(sl_cuda_libraries_open(false, &(sl_log){ 0 }, &c.libraries));
    c.workspace_bytes = SL_CUDA_GEMM_WORKSPACE + (1 << 20);
    c.workspace = take(c.workspace_bytes);
    run(&c);
    free(c.workspace);
    sl_cuda_libraries_close(c.libraries);
}

TEST(cuda_products_of_every_layout_and_form_are_right)
{
    with_checks(check_layouts);
}

TEST(cuda_gradients_of_linear_parameters_are_right_in_every_form)
{
    with_checks(check_weight_gradients);
}

TEST(cuda_sums_of_columns_have_the_same_bits_at_odd_addresses)
{
    with_checks(check_sums_and_products);
}

TEST(cuda_head_gives_loss_and_gradients_without_all_logits)
{
    with_checks(check_heads);
}

/* What is asked for is what the largest call of the checks had, not less than it uses. */
TEST(a_cuda_product_without_its_workspace_is_refused)
{
    float x = 1.0f, y = 0.0f;
    sl_shape shape = { 2, { 1, 1 } };
    sl_attrs attrs = { 0 };
    sl_cuda_args a = { .attrs = &attrs, .input_count = 2, .output_count = 1, .name = "small" };
    a.in[0] = a.in[1] = (sl_cuda_tensor){ &x, &shape, 1, SL_FORM_F32 };
    a.out[0] = (sl_cuda_tensor){ &y, &shape, 1, SL_FORM_F32 };
    a.workspace = &x;
    a.workspace_bytes = SL_CUDA_GEMM_WORKSPACE - 1;
    CHECK(sl_cuda_linear(&a) == SLUICE_ERR_FAILED && y == 0.0f);
}

TEST(sums_of_columns_cut_rows_by_shape_and_stay_within_the_workspace)
{
    for (int64_t rows = 1; rows < 1 << 20; rows = rows * 3 + 1)
        for (int64_t columns = 1; columns < 1 << 20; columns = columns * 5 + 3) {
            int64_t parts = sl_cuda_column_parts(rows, columns, SL_FORM_BF16);
            CHECK(parts >= 1 && (parts == 1 || parts * SL_CUDA_COLUMN_ROWS < rows + SL_CUDA_COLUMN_ROWS));
            CHECK(sl_cuda_column_bytes(rows, columns, SL_FORM_BF16) <= SL_CUDA_GEMM_WORKSPACE);
        }
}

TEST(rows_of_the_heads_logits_begin_at_cache_lines)
{
    for (int f = 0; f < CHECK_FORMS; f++)
        for (int64_t classes = 1; classes < 1 << 20; classes = classes * 5 + 3) {
            const int64_t stride = sl_cuda_head_stride(classes, check_forms[f]);
            const int64_t bytes = stride * (int64_t)sl_linear_element_bytes(check_forms[f]);
            CHECK(stride >= classes && bytes % 128 == 0);
            CHECK((stride - classes) * (int64_t)sl_linear_element_bytes(check_forms[f]) < 128);
        }
    CHECK_EQ(sl_cuda_head_stride(30522, SL_FORM_BF16), 30528);
    CHECK_EQ(sl_cuda_head_stride(50304, SL_FORM_BF16), 50304);
}

TEST(chunks_of_the_head_are_even_and_within_their_bytes)
{
    for (int64_t rows = 1; rows < 1 << 18; rows = rows * 3 + 1)
        for (int64_t classes = 1; classes < 1 << 20; classes = classes * 5 + 3) {
            int64_t chunk = sl_cuda_head_rows(rows, classes, SL_FORM_F16);
            CHECK(chunk >= 1 && chunk <= rows + SL_CUDA_HEAD_ROUND);
            const uint64_t bytes = (uint64_t)(chunk * sl_cuda_head_stride(classes, SL_FORM_F16)) * 2;
            CHECK(chunk <= SL_CUDA_HEAD_LEAST || bytes <= SL_CUDA_HEAD_BYTES);
            CHECK(chunk >= rows || chunk % SL_CUDA_HEAD_ROUND == 0);
        }
}
