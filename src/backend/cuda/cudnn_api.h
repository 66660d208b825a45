/* cudnn_api.h: cuDNN 9 through the functions found in its file: its graph interface, of which the names and numbers that
 * cudnn_conv.c uses are declared here, because the toolkit does not bring cuDNN's headers. Numbers of the interface do
 * not change within a major version. */
#ifndef SL_BACKEND_CUDA_CUDNN_API_H
#define SL_BACKEND_CUDA_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Objects of the interface, and its statuses: 0 is success. */
typedef void *sl_cudnn_object;
typedef int sl_cudnn_status;

/* Field, symbol, result, arguments. */
#define SL_CUDNN_FUNCTIONS(X)                                                                                          \
    X(version, cudnnGetVersion, size_t, (void))                                                                        \
    X(status_text, cudnnGetErrorString, const char *, (sl_cudnn_status status))                                        \
    X(create, cudnnCreate, sl_cudnn_status, (void **handle))                                                           \
    X(destroy, cudnnDestroy, sl_cudnn_status, (void *handle))                                                          \
    X(set_stream, cudnnSetStream, sl_cudnn_status, (void *handle, void *stream))                                       \
    X(make, cudnnBackendCreateDescriptor, sl_cudnn_status, (int kind, sl_cudnn_object *out))                           \
    X(drop, cudnnBackendDestroyDescriptor, sl_cudnn_status, (sl_cudnn_object o))                                       \
    X(set, cudnnBackendSetAttribute, sl_cudnn_status,                                                                  \
      (sl_cudnn_object o, int name, int type, int64_t count, const void *values))                                      \
    X(get, cudnnBackendGetAttribute, sl_cudnn_status,                                                                  \
      (sl_cudnn_object o, int name, int type, int64_t room, int64_t *count, void *values))                             \
    X(finish, cudnnBackendFinalize, sl_cudnn_status, (sl_cudnn_object o))                                              \
    X(execute, cudnnBackendExecute, sl_cudnn_status, (void *handle, sl_cudnn_object plan, sl_cudnn_object pack))

typedef struct sl_cudnn_api {
#define SL_FIELD(field, symbol, result, arguments) result(*field) arguments;
    SL_CUDNN_FUNCTIONS(SL_FIELD)
#undef SL_FIELD
} sl_cudnn_api;

/* Kinds of objects. */
enum {
    SL_CUDNN_CONVOLUTION = 1,
    SL_CUDNN_ENGINE = 2,
    SL_CUDNN_CONFIG = 3,
    SL_CUDNN_HEURISTIC = 4,
    SL_CUDNN_PLAN = 5,
    SL_CUDNN_FORWARD = 10,
    SL_CUDNN_BACKWARD_FILTER = 11,
    SL_CUDNN_BACKWARD_DATA = 12,
    SL_CUDNN_GRAPH = 15,
    SL_CUDNN_PACK = 16,
    SL_CUDNN_TENSOR = 17,
};

/* Types of attributes. */
enum {
    SL_CUDNN_IS_HANDLE = 0,
    SL_CUDNN_IS_DATA_TYPE = 1,
    SL_CUDNN_IS_INT64 = 3,
    SL_CUDNN_IS_FLOAT = 4,
    SL_CUDNN_IS_POINTER = 6,
    SL_CUDNN_IS_CONVOLUTION_MODE = 7,
    SL_CUDNN_IS_HEURISTIC_MODE = 8,
    SL_CUDNN_IS_NUMERICAL_NOTE = 11,
    SL_CUDNN_IS_OBJECT = 15,
    SL_CUDNN_IS_BEHAVIOR_NOTE = 19,
};

/* Attributes, by kind of object. Those of the three convolutions are from a first number on in one order: alpha, beta,
 * convolution, then the operands. */
enum {
    SL_CUDNN_CONVOLUTION_COMPUTE = 100,
    SL_CUDNN_CONVOLUTION_MODE = 101,
    SL_CUDNN_CONVOLUTION_DILATIONS = 102,
    SL_CUDNN_CONVOLUTION_STRIDES = 103,
    SL_CUDNN_CONVOLUTION_PADDING_AFTER = 104,
    SL_CUDNN_CONVOLUTION_PADDING_BEFORE = 105,
    SL_CUDNN_CONVOLUTION_DIMENSIONS = 106,
    SL_CUDNN_HEURISTIC_MODE = 200,
    SL_CUDNN_HEURISTIC_GRAPH = 201,
    SL_CUDNN_HEURISTIC_RESULTS = 202,
    SL_CUDNN_CONFIG_ENGINE = 300,
    SL_CUDNN_PLAN_HANDLE = 400,
    SL_CUDNN_PLAN_CONFIG = 401,
    SL_CUDNN_PLAN_WORKSPACE = 402,
    SL_CUDNN_FORWARD_FIRST = 700,
    SL_CUDNN_FORWARD_W = 703,
    SL_CUDNN_FORWARD_X = 704,
    SL_CUDNN_FORWARD_Y = 705,
    SL_CUDNN_BACKWARD_DATA_FIRST = 706,
    SL_CUDNN_BACKWARD_DATA_W = 709,
    SL_CUDNN_BACKWARD_DATA_DX = 710,
    SL_CUDNN_BACKWARD_DATA_DY = 711,
    SL_CUDNN_BACKWARD_FILTER_FIRST = 712,
    SL_CUDNN_BACKWARD_FILTER_DW = 715,
    SL_CUDNN_BACKWARD_FILTER_X = 716,
    SL_CUDNN_BACKWARD_FILTER_DY = 717,
    SL_CUDNN_GRAPH_HANDLE = 800,
    SL_CUDNN_GRAPH_OPERATIONS = 801,
    SL_CUDNN_TENSOR_ALIGNMENT = 900,
    SL_CUDNN_TENSOR_TYPE = 901,
    SL_CUDNN_TENSOR_SIZES = 902,
    SL_CUDNN_TENSOR_STRIDES = 903,
    SL_CUDNN_TENSOR_ID = 906,
    SL_CUDNN_PACK_IDS = 1000,
    SL_CUDNN_PACK_POINTERS = 1001,
    SL_CUDNN_PACK_WORKSPACE = 1003,
    SL_CUDNN_ENGINE_NUMERICAL_NOTES = 1303,
    SL_CUDNN_ENGINE_BEHAVIOR_NOTES = 1305,
};

/* Values. */
enum { SL_CUDNN_F32 = 0, SL_CUDNN_F16 = 2, SL_CUDNN_BF16 = 9 };
enum { SL_CUDNN_CROSS_CORRELATION = 1 };
enum { SL_CUDNN_MODE_A = 3 };
enum {
    SL_CUDNN_NOTE_TENSOR_CORE = 0,
    SL_CUDNN_NOTE_DOWN_CONVERTS = 1,
    SL_CUDNN_NOTE_STRICT_NAN = 9,
    SL_CUDNN_NOTES = 32, /* room for as many */
};
enum { SL_CUDNN_NOTE_RUNTIME_COMPILATION = 0 };

/* Opens the file, or with NULL libcudnn.so.9, which opens its parts itself. SLUICE_ERR_USAGE with the loader's reason, or
 * the function it lacks. The file stays open. */
sluice_status sl_cudnn_api_open(const char *path, sl_cudnn_api *out);

#endif
