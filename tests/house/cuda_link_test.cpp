#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string_view>

#include "kernels/cuda/about.h"

// The library itself looks at the operations and graphs; what it makes of them only a GPU can show.
TEST(CudaLink, CudnnTakesTheGraphsOfAttention) {
  void* library = dlopen(TRIAX_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto check =
      reinterpret_cast<decltype(&triax_cuda_check_cudnn)>(dlsym(library, "triax_cuda_check_cudnn"));
  ASSERT_NE(check, nullptr) << dlerror();
  const char* words = check();
  if (words && std::string_view(words) == "no cuDNN") GTEST_SKIP() << words;
  EXPECT_EQ(words, nullptr) << words;
}

// What a machine without a GPU can show: the library was linked with everything it needs, opens, and says
// what it is made of and what is missing.
TEST(CudaLink, AnswersWithoutAGpu) {
  void* library = dlopen(TRIAX_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto about = reinterpret_cast<decltype(&triax_cuda_about)>(dlsym(library, "triax_cuda_about"));
  ASSERT_NE(about, nullptr) << dlerror();

  TriaxCudaAbout found = {-1, -1, -1, -1, -1};
  const char* missing = about(&found);
  EXPECT_GE(found.runtime, 12000);
  EXPECT_GE(found.cublaslt, 120000);
  EXPECT_TRUE(found.cudnn == 0 || found.cudnn == 1) << found.cudnn;
  EXPECT_GE(found.driver, 0);
  if (found.devices == 0) {
    ASSERT_NE(missing, nullptr);
    EXPECT_STRNE(missing, "");
    RecordProperty("missing", missing);
  } else {
    EXPECT_GT(found.devices, 0);
    EXPECT_EQ(missing, nullptr) << missing;
    EXPECT_GT(found.driver, 0);
  }
}
