# Distribution packages, found here and nowhere else; nothing is downloaded. `make build` installs what is missing.
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# oneDNN's CMake package asks for OpenCL, so it is found by hand.
find_path(DNNL_INCLUDE_DIR dnnl.h PATH_SUFFIXES oneapi/dnnl)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN not found: install libdnnl-dev, or set DNNL_INCLUDE_DIR and DNNL_LIBRARY")
endif()
add_library(triax_blas INTERFACE)
target_include_directories(triax_blas SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(triax_blas INTERFACE ${DNNL_LIBRARY})

set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
add_library(triax_hdf5 INTERFACE)
target_include_directories(triax_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(triax_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
