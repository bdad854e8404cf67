// cuBLASLt by plain loops: D = epilogue(alpha op(A) op(B) + beta C), with fp32 sums.

#include "include/cublasLt.h"
#include "streams.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  int32_t compute, scale, transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0;
  int32_t bias_type = -1;
};
struct cublasLtMatrixLayoutOpaque_t {
  uint32_t type;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows, cols;
  int64_t ld;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t reduction = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

float widen(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
uint16_t narrow(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Element (row, column) of a matrix as its layout describes it.
struct View {
  const cublasLtMatrixLayoutOpaque_t& layout;
  const void* data;
  size_t at(uint64_t row, uint64_t column) const {
    const auto ld = static_cast<uint64_t>(layout.ld);
    return layout.order == CUBLASLT_ORDER_COL ? column * ld + row : row * ld + column;
  }
  float get(uint64_t row, uint64_t column) const { return load(data, layout.type, at(row, column)); }
  static float load(const void* data, uint32_t type, size_t i) {
    return type == CUDA_R_32F ? static_cast<const float*>(data)[i]
                              : widen(static_cast<const uint16_t*>(data)[i]);
  }
  static void store(void* data, uint32_t type, size_t i, float x) {
    if (type == CUDA_R_32F)
      static_cast<float*>(data)[i] = x;
    else
      static_cast<uint16_t*>(data)[i] = narrow(x);
  }
};

bool has_room(const cublasLtMatrixLayoutOpaque_t& l) {
  return (l.type == CUDA_R_32F || l.type == CUDA_R_16BF) &&
         l.ld >= static_cast<int64_t>(l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols);
}

struct Shape {
  uint64_t m, n, k;
};

cublasStatus_t check(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                     const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                     const cublasLtMatrixLayoutOpaque_t& d, Shape& shape) {
  const bool tf32 = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((!tf32 && desc.compute != CUBLAS_COMPUTE_32F) || (tf32 && a.type != CUDA_R_32F) ||
      desc.scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool ta = desc.transpose_a == CUBLAS_OP_T, tb = desc.transpose_b == CUBLAS_OP_T;
  shape = {ta ? a.cols : a.rows, tb ? b.rows : b.cols, ta ? a.rows : a.cols};
  if ((tb ? b.cols : b.rows) != shape.k || d.rows != shape.m || d.cols != shape.n || c.rows != d.rows ||
      c.cols != d.cols || shape.m == 0 || shape.n == 0 || shape.k == 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_room(a) || !has_room(b) || !has_room(c) || !has_room(d)) return CUBLAS_STATUS_INVALID_VALUE;
  // Types as the library's table has them for fp32 sums.
  if (a.type != b.type || c.type != d.type || (a.type == CUDA_R_32F && d.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Epilogues beyond the plain one need a D in columns.
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.order != CUBLASLT_ORDER_COL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool uses_bias = desc.epilogue & (4u | 16u | 256u | 512u), uses_aux = desc.epilogue & 128u;
  if (uses_bias && !desc.bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (uses_bias && desc.bias_type != -1 && desc.bias_type != static_cast<int32_t>(d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (uses_aux && (!desc.aux || desc.aux_ld % 8 != 0 || desc.aux_ld < static_cast<int64_t>(d.rows)))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

float gelu(float z) {
  return 0.5f * z * (1 + std::tanh(0.7978845608f * (z + 0.044715f * z * z * z)));
}
float gelu_slope(float z) {
  const float t = std::tanh(0.7978845608f * (z + 0.044715f * z * z * z));
  return 0.5f * (1 + t) + 0.5f * z * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * z * z);
}

}  // namespace

size_t cublasLtGetVersion() {
  return 130000;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "the operation completed successfully";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value was passed as an argument";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "unknown status";
  }
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return take(desc->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return take(desc->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(desc->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(desc->bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{.type = type, .rows = rows, .cols = cols, .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return take(layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return take(layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return take(layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return take(layout->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return take(layout->ld, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reduction, value, bytes);
    default:
      if (attribute < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ||
          attribute > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        return CUBLAS_STATUS_INVALID_VALUE;
      return take(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                  bytes);
  }
}

namespace {

/// What algorithms the heuristic was asked for: a line for each kind of product.
struct Asked {
  std::mutex mutex;
  std::set<std::string> products;
};
Asked& asked() {
  static Asked all;
  return all;
}

}  // namespace

/// These lines, of all threads since the last call.
extern "C" const char* emulated_cuda_products() {
  static thread_local std::string text;
  const std::lock_guard lock(asked().mutex);
  text.clear();
  for (const std::string& line : std::exchange(asked().products, {})) text += line;
  return text.c_str();
}

// The algorithm carries what it was asked for, so that the product can refuse what an algorithm of the
// library might read wrongly: another shape, less aligned operands, a smaller workspace.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *returned = 0;
  Shape shape{};
  const cublasStatus_t status = check(*desc, *a, *b, *c, *d, shape);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const uint32_t* al = preference->alignment;
  {
    const std::lock_guard lock(asked().mutex);
    std::ostringstream text;
    text << shape.m << " x " << shape.n << " x " << shape.k << ", types " << a->type << " " << d->type
         << ", op " << desc->transpose_a << " " << desc->transpose_b << ", epilogue " << desc->epilogue
         << ", aligned " << al[0] << " " << al[1] << " " << al[2] << " " << al[3] << "\n";
    asked().products.insert(text.str());
  }
  results[0] = {};
  results[0].algo = {{shape.m, shape.n, shape.k, uint64_t{al[0]} << 32 | al[1], uint64_t{al[2]} << 32 | al[3],
                      preference->workspace, a->type | d->type << 8, 0x7472696178}};
  results[0].workspaceSize = preference->workspace;
  results[0].wavesCount = 1;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

bool aligned(const void* p, uint64_t bytes) {
  return bytes == 0 || reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

/// Rounded to the 10 bits of mantissa that TF32 has, ties away from zero (cvt.rna.tf32.f32 of PTX).
float as_tf32(float x) {
  return std::isfinite(x) ? std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu) : x;
}

/// op(matrix) as rows of floats.
std::vector<float> packed(const View& view, bool transpose, uint64_t rows, uint64_t cols, bool tf32) {
  std::vector<float> out(rows * cols);
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c) out[r * cols + c] = transpose ? view.get(c, r) : view.get(r, c);
  if (tf32)
    for (float& x : out) x = as_tf32(x);
  return out;
}

/// sum[j, i] += a[i, k] b[k, j] for all i, j: the long way round, but with contiguous inner loops.
void multiply(const Shape& s, const std::vector<float>& a_columns, const std::vector<float>& b_columns,
              std::vector<float>& sum) {
  for (uint64_t j = 0; j < s.n; ++j) {
    float* out = sum.data() + j * s.m;
    for (uint64_t k = 0; k < s.k; ++k) {
      const float x = b_columns[j * s.k + k];
      const float* in = a_columns.data() + k * s.m;
      for (uint64_t i = 0; i < s.m; ++i) out[i] += in[i] * x;
    }
  }
}

}  // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Shape s{};
  const cublasStatus_t status = check(*desc, *a_layout, *b_layout, *c_layout, *d_layout, s);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo) {
    const uint64_t* asked = algo->data;
    if (asked[7] != 0x7472696178 || asked[0] != s.m || asked[1] != s.n || asked[2] != s.k ||
        asked[6] != (a_layout->type | d_layout->type << 8) || workspace_bytes < asked[5] ||
        (asked[5] > 0 && !aligned(workspace, 256)) || !aligned(a, asked[3] >> 32) ||
        !aligned(b, asked[3] & 0xffffffff) || !aligned(c, asked[4] >> 32) ||
        !aligned(d, asked[4] & 0xffffffff))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  emulated_cuda::called("cublasLtMatmul");
  const float al = *static_cast<const float*>(alpha), be = *static_cast<const float*>(beta);
  // Copies: the caller may destroy the descriptors before the stream comes to this.
  struct Layouts {
    std::remove_pointer_t<cublasLtMatmulDesc_t> desc;
    std::remove_pointer_t<cublasLtMatrixLayout_t> a, b, c, d;
  };
  const Layouts layouts{*desc, *a_layout, *b_layout, *c_layout, *d_layout};
  const cudaError_t enqueued = emulated_cuda::enqueue(stream, [=] {
    const bool ta = layouts.desc.transpose_a == CUBLAS_OP_T, tb = layouts.desc.transpose_b == CUBLAS_OP_T;
    // Columns one behind the other: the transposed matrices in rows.
    const bool tf32 = layouts.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const std::vector<float> columns_a = packed({layouts.a, a}, !ta, s.k, s.m, tf32);
    const std::vector<float> columns_b = packed({layouts.b, b}, !tb, s.n, s.k, tf32);
    std::vector<float> sum(s.m * s.n, 0.0f);
    multiply(s, columns_a, columns_b, sum);

    const View view_c{layouts.c, c}, view_d{layouts.d, d};
    std::vector<float> gradient(s.m, 0.0f);
    const uint32_t e = layouts.desc.epilogue;
    for (uint64_t j = 0; j < s.n; ++j)
      for (uint64_t i = 0; i < s.m; ++i) {
        float x = al * sum[j * s.m + i] + (be != 0 ? be * view_c.get(i, j) : 0);
        if (e & CUBLASLT_EPILOGUE_BIAS) x += View::load(layouts.desc.bias, layouts.d.type, i);
        const auto at_aux = static_cast<size_t>(j) * static_cast<size_t>(layouts.desc.aux_ld) + i;
        if (e & CUBLASLT_EPILOGUE_GELU) {
          if (e & 128u) View::store(layouts.desc.aux, layouts.d.type, at_aux, x);
          x = gelu(x);
        }
        if (e & 64u) x *= gelu_slope(View::load(layouts.desc.aux, layouts.d.type, at_aux));
        gradient[i] += x;
        View::store(d, layouts.d.type, view_d.at(i, j), x);
      }
    if (e & 16u)
      for (uint64_t i = 0; i < s.m; ++i) View::store(layouts.desc.bias, layouts.d.type, i, gradient[i]);
    if (e & CUBLASLT_EPILOGUE_BGRADA)
      for (uint64_t i = 0; i < s.m; ++i) {
        float total = 0;
        for (uint64_t k = 0; k < s.k; ++k) total += columns_a[k * s.m + i];
        View::store(layouts.desc.bias, layouts.d.type, i, total);
      }
    if (e & CUBLASLT_EPILOGUE_BGRADB)
      for (uint64_t j = 0; j < s.n; ++j) {
        float total = 0;
        for (uint64_t k = 0; k < s.k; ++k) total += columns_b[j * s.k + k];
        View::store(layouts.desc.bias, layouts.d.type, j, total);
      }
  });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
