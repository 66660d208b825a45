/* ops.c: the op table, made of the rows of op_list.h. Everything that is true of an op and not of a backend is in its
 * row. */
#include "ir/op_rows.h"

#define SL_FORWARD_OP(op, name_, infer_, gradient_, cost_, attributes_, ...)                                           \
    [SL_OP_##op] = { .name = #name_,                                                                                   \
                     .phase = SL_PHASE_FORWARD,                                                                        \
                     .infer = sl_infer_##infer_,                                                                       \
                     .gradient = sl_gradient_##gradient_,                                                              \
                     .cost = sl_cost_##cost_,                                                                          \
                     .attributes = &sl_attributes_##attributes_,                                                       \
                     __VA_ARGS__ },
#define SL_BACKWARD_OP(op, name_, infer_, cost_, attributes_, ...)                                                     \
    [SL_OP_##op] = { .name = #name_,                                                                                   \
                     .phase = SL_PHASE_BACKWARD,                                                                       \
                     .infer = sl_infer_##infer_,                                                                       \
                     .cost = sl_cost_##cost_,                                                                          \
                     .attributes = &sl_attributes_##attributes_,                                                       \
                     __VA_ARGS__ },
#define SL_UPDATE_OP(op, name_, cost_, attributes_, ...)                                                               \
    [SL_OP_##op] = { .name = #name_,                                                                                   \
                     .phase = SL_PHASE_UPDATE,                                                                         \
                     .cost = sl_cost_##cost_,                                                                          \
                     .attributes = &sl_attributes_##attributes_,                                                       \
                     __VA_ARGS__ },

const sl_op_def sl_ops[SL_OP_COUNT] = {
#include "ir/op_list.h"
};
