#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <cudnn_graph.h>

namespace triax::cuda {

/// The functions of cuDNN's graph library (libcudnn.so.9), opened at run time: nothing else needs it.
struct Cudnn {
  /// The library, opened at the first call; a fault that says what is missing.
  static const Cudnn& get();

  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;

  /// A fault with cuDNN's words unless `status` is success.
  void check(cudnnStatus_t status, const char* call) const;
};

/// Operations on tensors of four dimensions, of which cuDNN makes kernels (its backend interface: "Graph API"
/// of its manual). For one shape: made and planned once, run often.
class CudnnGraph {
 public:
  using Four = std::array<int64_t, 4>;
  using Tensor = cudnnBackendDescriptor_t;

  CudnnGraph() = default;
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  /// A tensor in memory; run() is told its address under `id`.
  Tensor tensor(int64_t id, cudnnDataType_t type, const Four& dims, const Four& strides);
  /// A float that run() is given with the others, in the host's memory.
  Tensor scalar(int64_t id);
  /// A tensor that no memory holds; rows one behind the other unless strides are given.
  Tensor between(const Four& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor between(const Four& dims, cudnnDataType_t type, const Four& strides);

  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  /// y = x where the condition holds, else otherwise.
  void select(Tensor x, Tensor otherwise, Tensor condition, Tensor y);
  /// y = each element's index along an axis of x.
  void index(int64_t axis, Tensor x, Tensor y);
  void reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y);
  void multiply(Tensor a, Tensor b, Tensor c);
  /// y is x in other dimensions and strides.
  void reshape(Tensor x, Tensor y);

  /// Closes the graph; without a handle, which only a machine with a GPU has, it can be looked at but not
  /// planned.
  void close(cudnnHandle_t handle);
  /// Chooses kernels by cuDNN's heuristic for the handle's GPU; false where it has none for this graph.
  bool plan(cudnnHandle_t handle);
  /// Bytes of the GPU's memory that run() wants for the plan.
  size_t workspace_bytes() const { return static_cast<size_t>(workspace_bytes_); }
  /// Enqueues the plan on the handle's stream with the addresses of tensor() and scalar().
  void run(cudnnHandle_t handle, const std::vector<int64_t>& ids, const std::vector<void*>& addresses,
           void* workspace) const;

 private:
  Tensor make_tensor(int64_t id, cudnnDataType_t type, const Four& dims, const Four& strides, bool is_virtual,
                     bool by_value);
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t pointwise_of(cudnnPointwiseMode_t mode, cudnnDataType_t precision);
  void finish(cudnnBackendDescriptor_t operation);

  const Cudnn& cudnn_ = Cudnn::get();
  std::vector<cudnnBackendDescriptor_t> all_, operations_;
  cudnnBackendDescriptor_t graph_ = nullptr, plan_ = nullptr;
  int64_t next_ = 1000, workspace_bytes_ = 0;
};

}  // namespace triax::cuda
