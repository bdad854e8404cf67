#pragma once

// The door of the CUDA library (lib/triax_cuda.so): plain C, so that it can be opened at run time by a
// program that was built without CUDA.
extern "C" {

/// What the library was linked with and what it finds on this machine. Versions are the vendors' own numbers.
struct TriaxCudaAbout {
  int runtime;   ///< CUDA runtime, e.g. 13000
  int cublaslt;  ///< e.g. 130000
  int cudnn;     ///< 1: attention can go through cuDNN, where that is found; 0: built without its headers
  int driver;    ///< newest CUDA that the driver knows; 0 without a driver
  int devices;   ///< GPUs that can be used; 0 without a driver
};

/// Fills *about. Returns null, or what is missing to use a GPU: a text that stays valid. Needs no GPU and no
/// driver.
const char* triax_cuda_about(struct TriaxCudaAbout* about);

/// Puts the graphs of attention that cuDNN is asked for before the libcudnn.so.9 that is found: null when it
/// takes them, or what it says; "no cuDNN" where the library has none or was built without. Needs no GPU.
const char* triax_cuda_check_cudnn();

}  // extern "C"
