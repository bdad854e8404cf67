# Libraries that `triax` opens at run time when a job asks for them: the CPU path loads neither.
find_package(MPI QUIET COMPONENTS C)
option(TRIAX_MPI "Build the MPI backend (default: where an MPI is found)" ${MPI_C_FOUND})
if(TRIAX_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  file(GLOB MPI_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/comm/mpi/*.cpp)
  if(MPI_SOURCES)
    add_library(triax_mpi MODULE ${MPI_SOURCES})
    set_target_properties(triax_mpi PROPERTIES PREFIX "")
    target_compile_definitions(triax_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    # Its copy of our static libraries stays its own.
    target_link_libraries(triax_mpi PRIVATE triax_comm MPI::MPI_C -Wl,--exclude-libs,ALL)
    if(TARGET triax)
      add_dependencies(triax triax_mpi)
    endif()
  endif()
endif()

# The CUDA library's files; the tests compile them a second time, for a machine without a GPU.
file(GLOB_RECURSE TRIAX_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/*.cu ${CMAKE_SOURCE_DIR}/kernels/*.cu
     ${CMAKE_SOURCE_DIR}/parallel/*.cu)
file(GLOB NCCL_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/comm/nccl/*.cu)
list(APPEND TRIAX_CUDA_SOURCES ${NCCL_SOURCES})

# CUDA: nvcc and cuBLASLt; the default is on where both are found.
find_program(TRIAX_NVCC nvcc HINTS $ENV{CUDACXX} $ENV{CUDA_PATH}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(TRIAX_NVCC)
  get_filename_component(nvcc_folder ${TRIAX_NVCC} REALPATH)
  get_filename_component(nvcc_folder ${nvcc_folder} DIRECTORY)
  set(CUDA_HINTS ${nvcc_folder}/.. /usr/local/cuda)
  find_path(CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDA_HINTS} PATH_SUFFIXES include)
  find_library(CUBLASLT_LIBRARY cublasLt HINTS ${CUDA_HINTS} PATH_SUFFIXES lib64 lib)
endif()
if(TRIAX_NVCC AND CUBLASLT_INCLUDE_DIR AND CUBLASLT_LIBRARY)
  set(CUDA_IS_HERE ON)
else()
  set(CUDA_IS_HERE OFF)
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDA_HINTS} $ENV{NCCL_HOME} PATH_SUFFIXES include)
if(CUDA_IS_HERE AND NCCL_INCLUDE_DIR)
  set(NCCL_IS_HERE ON)
else()
  set(NCCL_IS_HERE OFF)
endif()
option(TRIAX_CUDA "Build the CUDA backend (default: where nvcc and cuBLASLt are found)" ${CUDA_IS_HERE})
# Only the header: the library itself is opened by a job with a GPU for each rank.
option(TRIAX_NCCL "Build NCCL into the CUDA backend (default: where nccl.h is found)" ${NCCL_IS_HERE})
if(TRIAX_NCCL AND NOT NCCL_INCLUDE_DIR)
  message(FATAL_ERROR "TRIAX_NCCL is ON, but nccl.h was not found; set NCCL_INCLUDE_DIR, or TRIAX_NCCL=OFF")
endif()
if(TRIAX_CUDA)
  if(NOT CUDA_IS_HERE)
    message(FATAL_ERROR "TRIAX_CUDA is ON, but nvcc (${TRIAX_NVCC}) or cuBLASLt (${CUBLASLT_LIBRARY}) was not found; "
            "set CUDACXX, CUBLASLT_LIBRARY and CUBLASLT_INCLUDE_DIR, or TRIAX_CUDA=OFF")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${TRIAX_NVCC})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90) # A100; H100 and H200. 90's PTX also serves what comes later
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25 knows nvcc only up to C++17.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(sources ${TRIAX_CUDA_SOURCES})
  if(NOT TRIAX_NCCL)
    list(REMOVE_ITEM sources ${NCCL_SOURCES})
    list(APPEND sources ${CMAKE_SOURCE_DIR}/comm/nccl/connect.cu) # which says that it is not there
  endif()
  add_library(triax_cuda MODULE ${sources})
  # What the sources are to compile for, today's and tomorrow's GPUs; nothing is linked of it, and a kernel that spills
  # registers is an error. The test FullCuda.CompilesForAllArchitectures builds it.
  add_library(triax_cuda_architectures OBJECT EXCLUDE_FROM_ALL ${sources})
  set_target_properties(triax_cuda_architectures PROPERTIES CUDA_ARCHITECTURES "80-real;90-real;100-real;120-real")
  # cuDNN's headers alone: the library is opened at run time, when attention is to go through it.
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDA_HINTS} PATH_SUFFIXES include)
  foreach(library triax_cuda triax_cuda_architectures)
    if(CUDNN_INCLUDE_DIR)
      target_compile_definitions(${library} PRIVATE TRIAX_CUDNN)
      target_include_directories(${library} SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
    endif()
    # 1675: headers of core have pragmas that are GCC's. Relaxed constexpr: kernels share code with the host by it.
    set_target_properties(${library} PROPERTIES PREFIX "" CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
                          CUDA_RUNTIME_LIBRARY Static
                          COMPILE_OPTIONS "--threads=0;--expt-relaxed-constexpr;--diag-suppress=1675;-Xcompiler=-Wall,-Wextra,-Werror,-Wno-unknown-pragmas;-Werror=all-warnings")
    target_compile_definitions(${library} PRIVATE FMT_USE_CONSTEXPR=1) # fmt 9 takes nvcc for older than it is
    target_include_directories(${library} SYSTEM PRIVATE ${CUBLASLT_INCLUDE_DIR})
    if(TRIAX_NCCL)
      target_compile_definitions(${library} PRIVATE TRIAX_HAVE_NCCL)
      target_include_directories(${library} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    endif()
    target_link_libraries(${library} PRIVATE triax_comm triax_core CUDA::cudart_static ${CUBLASLT_LIBRARY}
                          -Wl,--exclude-libs,ALL)
    target_include_directories(${library} PRIVATE
                               $<TARGET_PROPERTY:triax_parallel,INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
  target_compile_options(triax_cuda_architectures PRIVATE "-Xptxas=--warn-on-spills,--warning-as-error")
  if(TARGET triax)
    add_dependencies(triax triax_cuda)
  endif()
endif()
