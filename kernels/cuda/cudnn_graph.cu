#ifdef TRIAX_CUDNN

#include "kernels/cuda/cudnn_graph.h"

#include <dlfcn.h>

#include <string>

#include "core/error.h"

namespace triax::cuda {

namespace {

template <class F>
void find(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  triax::check(function != nullptr, "libcudnn.so.9 has no {}: attention through cuDNN takes version 9", name);
}

Cudnn open_library() {
  void* library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(
        "attention through cuDNN was asked for (TRIAX_CUDA_ATTENTION), but {}; put the library's folder into "
        "LD_LIBRARY_PATH, or leave the variable out",
        dlerror());
  // 9.6 clears the sums of the backward's queries by itself; before it was the caller's to do.
  decltype(&cudnnGetVersion) version = nullptr;
  find(library, version, "cudnnGetVersion");
  constexpr size_t oldest = 90600;
  triax::check(
      version() >= oldest,
      "libcudnn.so.9 is cuDNN {}.{}.{}; attention through cuDNN (TRIAX_CUDA_ATTENTION) takes {}.{} or "
      "newer",
      version() / 10000, version() / 100 % 100, version() % 100, oldest / 10000, oldest / 100 % 100);
  Cudnn c{};
  find(library, c.create, "cudnnCreate");
  find(library, c.destroy, "cudnnDestroy");
  find(library, c.set_stream, "cudnnSetStream");
  find(library, c.error_string, "cudnnGetErrorString");
  find(library, c.last_error, "cudnnGetLastErrorString");
  find(library, c.create_descriptor, "cudnnBackendCreateDescriptor");
  find(library, c.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(library, c.set_attribute, "cudnnBackendSetAttribute");
  find(library, c.get_attribute, "cudnnBackendGetAttribute");
  find(library, c.finalize, "cudnnBackendFinalize");
  find(library, c.execute, "cudnnBackendExecute");
  return c;
}

template <class T>
void set(const Cudnn& cudnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const T* values, int64_t count, const char* what) {
  cudnn.check(cudnn.set_attribute(d, name, type, count, values), what);
}
void set(const Cudnn& cudnn, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
         cudnnBackendDescriptor_t value, const char* what) {
  set(cudnn, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value, 1, what);
}

}  // namespace

const Cudnn& Cudnn::get() {
  static const Cudnn library = open_library();
  return library;
}

void Cudnn::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[512] = {};
  last_error(words, sizeof words);
  fail("{}: cuDNN says {}: {}", call, error_string(status), words);
}

CudnnGraph::~CudnnGraph() {
  for (auto d = all_.rbegin(); d != all_.rend(); ++d) cudnn_.destroy_descriptor(*d);
}

cudnnBackendDescriptor_t CudnnGraph::make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  cudnn_.check(cudnn_.create_descriptor(type, &made), "cudnnBackendCreateDescriptor");
  all_.push_back(made);
  return made;
}

CudnnGraph::Tensor CudnnGraph::make_tensor(int64_t id, cudnnDataType_t type, const Four& dims,
                                           const Four& strides, bool is_virtual, bool by_value) {
  const Tensor t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t alignment = 16;
  set(cudnn_, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &id, 1, "a tensor's id");
  set(cudnn_, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type, 1, "a tensor's type");
  set(cudnn_, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment, 1, "a tensor's alignment");
  set(cudnn_, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), 4, "a tensor's dimensions");
  set(cudnn_, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4, "a tensor's strides");
  set(cudnn_, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual, 1, "a tensor without memory");
  set(cudnn_, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value, 1, "a tensor by value");
  cudnn_.check(cudnn_.finalize(t), "a tensor of cuDNN");
  return t;
}

CudnnGraph::Tensor CudnnGraph::tensor(int64_t id, cudnnDataType_t type, const Four& dims,
                                      const Four& strides) {
  return make_tensor(id, type, dims, strides, false, false);
}
CudnnGraph::Tensor CudnnGraph::scalar(int64_t id) {
  return make_tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}
CudnnGraph::Tensor CudnnGraph::between(const Four& dims, cudnnDataType_t type, const Four& strides) {
  return make_tensor(next_++, type, dims, strides, true, false);
}
CudnnGraph::Tensor CudnnGraph::between(const Four& dims, cudnnDataType_t type) {
  return between(dims, type, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1});
}

cudnnBackendDescriptor_t CudnnGraph::pointwise_of(cudnnPointwiseMode_t mode, cudnnDataType_t precision) {
  const cudnnBackendDescriptor_t p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(cudnn_, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode, 1, "a pointwise mode");
  set(cudnn_, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &precision, 1, "a precision");
  return p;
}

void CudnnGraph::finish(cudnnBackendDescriptor_t operation) {
  cudnn_.check(cudnn_.finalize(operation), "an operation of cuDNN");
  operations_.push_back(operation);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y,
                           cudnnDataType_t precision) {
  const cudnnBackendDescriptor_t p = pointwise_of(mode, precision);
  cudnn_.check(cudnn_.finalize(p), "a pointwise operation");
  const cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, "a pointwise operation");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "a pointwise operand");
  if (b) set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, "a second pointwise operand");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, "a pointwise result");
  finish(op);
}

void CudnnGraph::select(Tensor x, Tensor otherwise, Tensor condition, Tensor y) {
  const cudnnBackendDescriptor_t p = pointwise_of(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT);
  cudnn_.check(cudnn_.finalize(p), "a selection");
  const cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, "a selection");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "what is selected");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, otherwise, "what is selected else");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition, "a condition");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, "a selection's result");
  finish(op);
}

void CudnnGraph::index(int64_t axis, Tensor x, Tensor y) {
  const cudnnBackendDescriptor_t p = pointwise_of(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32);
  set(cudnn_, p, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &axis, 1, "an axis");
  cudnn_.check(cudnn_.finalize(p), "an index");
  const cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p, "an index");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "what is indexed");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, "an index's result");
  finish(op);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y) {
  const cudnnBackendDescriptor_t r = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  set(cudnn_, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &how, 1, "a reduction");
  set(cudnn_, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &precision, 1,
      "a reduction's precision");
  cudnn_.check(cudnn_.finalize(r), "a reduction");
  const cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set(cudnn_, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r, "a reduction");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, "a reduction's operand");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, "a reduction's result");
  finish(op);
}

void CudnnGraph::multiply(Tensor a, Tensor b, Tensor c) {
  const cudnnBackendDescriptor_t m = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  set(cudnn_, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &precision, 1, "a product's precision");
  cudnn_.check(cudnn_.finalize(m), "a product");
  const cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set(cudnn_, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m, "a product");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, "a product's left operand");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, "a product's right operand");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, "a product's result");
  finish(op);
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  const cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set(cudnn_, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, "what is reshaped");
  set(cudnn_, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, "what it is reshaped to");
  finish(op);
}

void CudnnGraph::close(cudnnHandle_t handle) {
  graph_ = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle)
    set(cudnn_, graph_, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle, 1, "a graph's handle");
  set(cudnn_, graph_, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
      static_cast<int64_t>(operations_.size()), "the operations of a graph");
  cudnn_.check(cudnn_.finalize(graph_), "a graph of operations");
}

bool CudnnGraph::plan(cudnnHandle_t handle) {
  const cudnnBackendDescriptor_t heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  set(cudnn_, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_, "a heuristic's graph");
  set(cudnn_, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode, 1, "a heuristic's mode");
  if (cudnn_.finalize(heuristic) != CUDNN_STATUS_SUCCESS) return false;
  constexpr int64_t most = 8;
  std::array<cudnnBackendDescriptor_t, most> choices{};
  for (cudnnBackendDescriptor_t& choice : choices) choice = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int64_t found = 0;
  if (cudnn_.get_attribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                           &found, choices.data()) != CUDNN_STATUS_SUCCESS)
    return false;
  for (int64_t i = 0; i < found && i < most; ++i) {
    const cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(cudnn_, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle, 1, "a plan's handle");
    set(cudnn_, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choices[static_cast<size_t>(i)],
        "a plan's engine");
    if (cudnn_.finalize(plan) != CUDNN_STATUS_SUCCESS) continue;
    int64_t count = 0;
    cudnn_.check(cudnn_.get_attribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                      &count, &workspace_bytes_),
                 "a plan's workspace");
    plan_ = plan;
    return true;
  }
  return false;
}

void CudnnGraph::run(cudnnHandle_t handle, const std::vector<int64_t>& ids,
                     const std::vector<void*>& addresses, void* workspace) const {
  cudnnBackendDescriptor_t pack = nullptr;
  cudnn_.check(cudnn_.create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "a variant pack");
  const auto count = static_cast<int64_t>(ids.size());
  cudnnStatus_t status =
      cudnn_.set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnn_.set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                                  addresses.data());
  if (status == CUDNN_STATUS_SUCCESS)
    status =
        cudnn_.set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnn_.finalize(pack);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnn_.execute(handle, plan_, pack);
  cudnn_.destroy_descriptor(pack);
  cudnn_.check(status, "cudnnBackendExecute");
}

}  // namespace triax::cuda

#endif
